"""Task scores against image quality: the share of a score that is kept, over MS-SSIM of the scan groups.

`python -m experiments.pcr.tolerance_slopes FOLDER... --out results/tolerance` reads folders of
`experiments.tolerance` and writes slopes.csv, slopes.md and the figure. Tasks differ in how much they can
lose, so scores are normalised: 1 is the score at all scans, 0 is chance level.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.pcr.accuracy_vs_mssim import LEAST_LEVELS
from experiments.pcr.tolerance_modes import scores_of, weights_of
from experiments.results.study import Study
from pcr_exp.analysis.caption import NOT_TIMED, Caption
from pcr_exp.analysis.figure import BELOW, enlarge, named_line, panel_title, panels, save_figure
from pcr_exp.analysis.marks import group_handles
from pcr_exp.analysis.style import MUTED, color_in_script, group_marker, style
from pcr_exp.analysis.tables import interval_cell, markdown_table, task_title
from pcr_exp.analysis.tolerance import WORDS, Measured, similarity_name, subtitle_of
from pcr_exp.analysis.tolerance_page import META_FILE, caption_of, load_tolerance
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.tolerance.answer import interval
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.training.task import primary_metric_named

NAME = "slopes"
TASK = ["dataset", "label", "headline"]
_LEGEND_IN = 1.0
_DASHES = {"full": "-", "same": "--"}

Floats = NDArray[np.float64]


def kept_table(measured: Sequence[Measured]) -> pd.DataFrame:
    """Return a row per task, deployment (`full`, `same`) and scan group.

    Columns: `dataset`, `label`, `headline`, `n` (images), `deployment`, `group`, `ms_ssim` (mean over the
    compared images); `kept`, the share of the score above chance level, with `kept_low` and `kept_high`;
    `slope` of the line through the groups (kept per unit of MS-SSIM) with `slope_low`, `slope_high`, and `r`;
    `curvature` of a parabola with `curvature_low` and `curvature_high` (`_bends`), which tests the line.
    Intervals are 95 %, from resamples of images. They are the same for every group, so a slope's are paired.

    Raises:
        ConfigError: MS-SSIM was not measured, or at fewer than LEAST_LEVELS groups, or nothing can be lost.
    """
    return pd.DataFrame([row for found in measured for use in DEPLOYMENTS for row in _rows(found, use)])


def _rows(measured: Measured, deployment: str) -> list[dict[str, object]]:
    facts = measured.facts
    _check(measured)
    assert measured.ms_ssim is not None
    quality = measured.ms_ssim.mean(axis=1).astype(float)
    kept = _kept(measured, deployment)
    slopes = _slopes(quality, kept)
    low, high = interval(slopes[1:])
    bends = _bends(quality, kept)
    bend_low, bend_high = interval(bends[1:]) if np.isfinite(bends[1:]).any() else (np.nan, np.nan)
    line = {
        "slope": slopes[0],
        "slope_low": low,
        "slope_high": high,
        "curvature": bends[0],
        "curvature_low": bend_low,
        "curvature_high": bend_high,
        "r": float(np.corrcoef(quality, kept[:, 0])[0, 1]) if np.ptp(kept[:, 0]) > 0 else np.nan,
    }
    rows = []
    for group, ms_ssim, of_group in zip(facts.groups, quality, kept, strict=True):
        low, high = interval(of_group[1:])
        rows.append(
            {
                "dataset": facts.dataset,
                "label": facts.label,
                "headline": facts.headline,
                "n": facts.num_images,
                "deployment": deployment,
                "group": group,
                "ms_ssim": ms_ssim,
                "kept": of_group[0],
                "kept_low": low,
                "kept_high": high,
                **line,
            }
        )
    return rows


def _check(measured: Measured) -> None:
    facts = measured.facts
    task = f"{facts.label} of {facts.dataset}"
    if measured.ms_ssim is None:
        raise ConfigError(
            f"{task}: num_similarity_images=0, so its MS-SSIM is not known; wanted images to compare. "
            "Measure it again without that setting: features that were kept are not made again."
        )
    if len(facts.groups) < LEAST_LEVELS:
        raise ConfigError(
            f"{task}: groups={list(facts.groups)}; a line wants {LEAST_LEVELS} or more, such as all ten."
        )


def _kept(measured: Measured, deployment: str) -> Floats:
    """Return (score - chance) / (score at all scans - chance), [groups, 1 + resamples], all images first."""
    facts, weights = measured.facts, weights_of(measured)
    scores = np.array([scores_of(measured, group, deployment, weights) for group in facts.groups])
    to_lose = scores[-1] - facts.chance_level
    if to_lose[0] <= 0:
        raise ConfigError(
            f"{facts.label} of {facts.dataset}: at all scans the score is {scores[-1, 0]:.3f}, "
            f"guessing reaches {facts.chance_level:.3f}; wanted a task that these features can tell, so "
            "that it can lose."
        )
    return np.asarray((scores - facts.chance_level) / np.where(to_lose > 0, to_lose, np.nan))


def _slopes(quality: Floats, kept: Floats) -> Floats:
    """Return the least-squares slopes through the groups, one per column of `kept`."""
    centred = quality - quality.mean()
    return np.asarray(centred @ (kept - kept.mean(axis=0)) / (centred @ centred))


def _bends(quality: Floats, kept: Floats) -> Floats:
    """Return how far the parabola through the groups rises above its chord at most, per column of `kept`.

    It is relative to the change of the straight line from the lowest quality to the highest. 0 is a line.
    Above 0, most is lost at the lowest groups.
    """
    span = float(np.ptp(quality))
    parabola = np.polynomial.polynomial.polyfit(quality - quality.mean(), kept, 2)[2]
    change = _slopes(quality, kept) * span
    return np.asarray(-parabola * span**2 / 4 / np.where(change == 0, np.nan, change))


def slopes_page(kept: pd.DataFrame) -> str:
    """Return a line per task and deployment in Markdown."""
    of_line = ["n", "slope", "slope_low", "slope_high", "r", "curvature", "curvature_low", "curvature_high"]
    tasks = kept.groupby([*TASK, "deployment"], sort=False)
    lines = tasks[of_line].first().assign(num_groups=tasks.size(), lowest=tasks["ms_ssim"].min())
    columns = {
        "task": lambda row: f"{row['dataset']} {row['label']}",
        "metric": lambda row: primary_metric_named(row["headline"]).words,
        "images": lambda row: f"{row['n']:,}",
        "used at": lambda row: "all scans" if row["deployment"] == "full" else "the same group",
        "groups": lambda row: str(row["num_groups"]),
        "MS-SSIM of crops from": lambda row: f"{row['lowest']:.3f}",
        "slope, share kept per MS-SSIM": interval_cell("slope", "{:.2f}".format),
        "r": lambda row: f"{row['r']:.2f}",
        "bend, share of the change": interval_cell("curvature", "{:.2f}".format),
    }
    return markdown_table(lines.reset_index(), columns) + "\n"


def draw_slopes(kept: pd.DataFrame, measured: Sequence[Measured]) -> Figure:
    """Draw the kept share of each task's score over MS-SSIM, a panel per task, with lines of `kept_table`."""
    with style():
        figure, axes = panels(len(measured))
        for ax, found in zip(axes, measured, strict=True):
            facts = found.facts
            rows = kept[(kept[TASK] == [facts.dataset, facts.label, facts.headline]).all(axis=1)]
            for deployment in DEPLOYMENTS:
                _draw_line(ax, rows[rows["deployment"] == deployment], deployment, facts.scans)
            ax.set_ylim(bottom=min(-0.15, ax.get_ylim()[0]), top=max(1.1, ax.get_ylim()[1]))
            ax.axhline(1, color=MUTED, linewidth=0.8)
            named_line(ax, 0, "guessing", fontsize=7)
            ax.set_xlabel(f"mean {similarity_name(facts)}")
            ax.set_ylabel(f"kept of {primary_metric_named(facts.headline).words}")
            ax.legend(**BELOW)
            panel_title(ax, task_title(facts.dataset, facts.label, facts.model), subtitle_of(facts))
        handles = {
            handle.get_label(): handle
            for found in measured
            for handle in group_handles(found.facts.groups, found.facts.scans)
        }
        figure.legend(handles=[*handles.values()], loc="outside right center")
        enlarge(figure, _LEGEND_IN)
    return figure


def _draw_line(ax: Axes, rows: pd.DataFrame, deployment: str, script: str) -> None:
    first = rows.iloc[0]
    for row in rows.to_dict("records"):
        color = color_in_script(row["group"], script)
        ax.vlines(row["ms_ssim"], row["kept_low"], row["kept_high"], color=color, linewidth=1.2, alpha=0.6)
        fill = color if deployment == "full" else "white"
        marker = group_marker(row["group"])
        ax.plot(row["ms_ssim"], row["kept"], marker, color=color, markerfacecolor=fill, zorder=4)
    ends = np.array([rows["ms_ssim"].min(), rows["ms_ssim"].max()])
    level = rows["kept"].mean() + first["slope"] * (ends - rows["ms_ssim"].mean())
    fill = "filled" if deployment == "full" else "hollow"
    words = f"{WORDS[deployment]} ({fill}): {first['slope']:.1f} per MS-SSIM"
    ax.plot(ends, level, _DASHES[deployment], color=MUTED, linewidth=1.2, zorder=2, label=words)


def measured_in(root: Path) -> list[Path]:
    """Return the folders of `experiments.tolerance` in a folder, sorted by name."""
    return sorted(path.parent for path in root.glob(f"*/{META_FILE}"))


def write_slopes(folders: Sequence[Path], out: Path) -> pd.DataFrame:
    """Read folders of `experiments.tolerance`, and write the table, the page and the figure."""
    measured = [load_tolerance(folder) for folder in folders]
    kept = kept_table(measured)
    make_folder(out)
    save_figure(partial(draw_slopes, measured=measured), kept, out, NAME, _caption(measured))
    write_atomic(out / f"{NAME}.md", [slopes_page(kept).encode()])
    return kept


def _caption(measured: Sequence[Measured]) -> Caption:
    each = [caption_of(found, "What is kept of the score, over image quality") for found in measured]
    return Caption(
        shows=each[0].shows,
        of=tuple(task for caption in each for task in caption.of),
        n=" / ".join(dict.fromkeys(caption.n for caption in each)),
        hardware=" / ".join(dict.fromkeys(caption.hardware for caption in each)),
        storage=NOT_TIMED,
    )


def write(given: Namespace) -> None:
    """Write the files and print the page."""
    print(slopes_page(write_slopes(given.folders, given.out)))


main = Study(__doc__, "outputs/tolerance", write, repeats=None, images=False)
main.add("folders", nargs="+", type=Path, help="of experiments.tolerance")

if __name__ == "__main__":
    main()
