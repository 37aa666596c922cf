"""Page and figure of projected times to accuracy: PCR figure 4 as a table, and speed-up over bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.pcr.learning import GROUP_COLUMNS
from experiments.pcr.time_to_target import OVERSHOT, projected_times, read_targets
from pcr_exp.analysis.caption import of_runs
from pcr_exp.analysis.figure import draw_panels, save_figure
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.measured import measured_line
from pcr_exp.analysis.plan import roofline_images_per_s
from pcr_exp.analysis.reporting_rules import all_hardware
from pcr_exp.analysis.runs import read_runs, read_timed_runs
from pcr_exp.analysis.style import MUTED, describe_scan, scan_levels
from pcr_exp.analysis.tables import (
    NOTHING,
    Cell,
    Footnotes,
    markdown_table,
    percent,
    section,
    span,
    task_title,
    three_figures,
)
from pcr_exp.errors import RunError
from pcr_exp.system import MIB
from pcr_exp.training.task import primary_metric_named

_PANEL = [*GROUP_COLUMNS, "setting"]
_ABOUT = (
    f"**Projected times, not measured ones: {OVERSHOT}.** Epochs to the target are of runs on storage "
    "without a limit (mean over n seeds). Seconds per epoch at this bandwidth are of runs of a minute that "
    "had the machine to themselves. Behind each time stands its projected speed-up over baseline; intervals "
    "are 95 %, t over seeds and, where there are several, the short runs. "
    "The target is the fair baseline's score less 2 points, declared beforehand; epochs are those after "
    "which runs were evaluated. Time to fill the first shuffle window is left out."
)


def write_projected(
    runs_root: str | Path, timing_root: str | Path, targets_root: str | Path, out: Path
) -> tuple[list[Path], list[Path]]:
    """Write projected_times.{csv,md} and the figure speedup_vs_bandwidth. Return (tables, figures).

    Raises:
        RunError: the two kinds of runs share no setting, or as `read_runs` and `read_targets`.
    """
    learned, timed = run_frame(read_runs(runs_root)), run_frame(read_timed_runs(timing_root))
    table = projected_times(learned, timed, read_targets(targets_root))
    if table.empty:
        raise RunError(
            f"none of the {len(learned)} runs below {runs_root} shares its setting with one of the "
            f"{len(timed)} short runs below {timing_root}: wanted runs of training.stop_after_s that differ "
            "from them in storage, seed and what decides learning alone."
        )
    tables = [out / "projected_times.csv", out / "projected_times.md"]
    table.to_csv(tables[0], index=False)
    tables[1].write_text(projected_to_markdown(table) + measured_line(learned, ["t over seeds"]))
    drawn = table[table["speedup"].notna()]
    if (drawn["encoding"] == "baseline").all():  # or there is none: no level reached the target
        return tables, []
    caption = replace(
        of_runs(timed, "Projected speed-up in time to accuracy over bandwidth"),
        n=f"n = {span(drawn['n'])} seeds that learned, {span(drawn['n_timed'])} timed at each bandwidth",
        storage="storage throttled to each bandwidth in MiB/s",
    )
    return tables, save_figure(draw_speedups, drawn, out, "speedup_vs_bandwidth", caption)


def projected_to_markdown(table: pd.DataFrame) -> str:
    """Return a table per bandwidth, with tasks in rows and scan levels in columns, and one of epochs."""
    parts = [_ABOUT + "\n"]
    for bandwidth, rows in table.groupby("bandwidth_mib_per_s", sort=True):
        notes = Footnotes()
        columns: dict[str, Cell] = {"task": _task, "target": _target, "n": lambda row: span(row["n"])}
        columns |= {level.words: _time_cell(level.label, notes) for level, _ in scan_levels(rows)}
        per_task = [_levels_of(task) for _, task in rows.groupby(_PANEL, sort=True)]
        title, hardware = f"{bandwidth:g} MiB/s, projected", f"{all_hardware(rows)}."
        parts.append(section(title, hardware, pd.DataFrame(per_task), columns, notes))
    measured = table.drop_duplicates([*_PANEL, "scan"])
    epochs = markdown_table(measured, _EPOCHS)
    parts.append(f"### Epochs to the target\n\n{epochs}\n")
    return "\n".join(parts)


def draw_speedups(table: pd.DataFrame) -> Figure:
    """Draw projected speed-ups in time to accuracy over bandwidth, with intervals, and the model's curve.

    One panel per dataset, label, model and input size. The curve uses the same epochs, and images/s =
    min(rate from unlimited storage, bandwidth / bytes per image).
    """
    found = [(*_titles(rows.iloc[0]), rows) for _, rows in table.groupby(_PANEL, sort=True)]
    return draw_panels(found, _draw_panel, words=f"projected: {OVERSHOT}")


def _titles(row: pd.Series) -> tuple[str, str]:
    words = primary_metric_named(row["headline"]).words
    return (
        task_title(row["dataset"], row["label"], row["model"]),
        f"{row['image_size_px']} px, to {percent(row['target_score'])} {words}; "
        "lines: min(compute, bandwidth / bytes)",
    )


def model_curve(rows: pd.DataFrame, level: pd.DataFrame, bandwidths: Sequence[float]) -> list[float]:
    """Return the model's speed-up of a level over baseline at each bandwidth; empty if it is unknown.

    Args:
        rows: Of one setting, with its baseline.
        level: The rows of one scan level.
        bandwidths: In MiB/s.
    """
    baseline = rows[rows["encoding"] == "baseline"]
    if baseline.empty or level["model_speedup"].isna().all():
        return []
    ours, theirs = level.iloc[0], baseline.iloc[0]

    def ratio(bandwidth: float) -> float:
        rates = [
            roofline_images_per_s(
                row["image_bytes"],
                bandwidth_bytes_per_s=bandwidth * MIB,
                compute_images_per_s=row["free_images_per_s"],
            )
            for row in (ours, theirs)
        ]
        return rates[0] / rates[1]

    epochs = ours["model_speedup"] / ratio(ours["bandwidth_mib_per_s"])
    return [float(epochs * ratio(bandwidth)) for bandwidth in bandwidths]


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    measured = sorted(set(rows["bandwidth_mib_per_s"]))
    grid = np.geomspace(measured[0] / 1.5, measured[-1] * 1.5, 100)
    ax.axhline(1, linewidth=0.8, color=MUTED, zorder=1)
    for level, found in scan_levels(rows):
        if level.encoding == "baseline":
            continue
        if curve := model_curve(rows, found, list(grid)):
            ax.plot(grid, curve, color=level.color, linewidth=1.2, zorder=2)
        middle, low, high = (found[f"speedup{end}"] for end in ("", "_low", "_high"))
        ax.errorbar(
            found["bandwidth_mib_per_s"],
            middle,
            yerr=np.nan_to_num([middle - low, high - middle]),
            color=level.color,
            marker=level.marker,
            linestyle="none",
            capsize=2,
            label=level.words,
            zorder=3,
        )
    ax.set_xscale("log")
    ax.set_xticks(measured)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("storage bandwidth (MiB/s)")
    ax.set_ylabel("projected speed-up in time to accuracy")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _levels_of(task: pd.DataFrame) -> dict[str, Any]:
    first = task.iloc[0]
    facts = {key: first[key] for key in (*_PANEL, "target_score", "headline")}
    return {**facts, "n": task["n"], "levels": {row["scan"]: row for row in task.to_dict("records")}}


def _task(row: Mapping[Any, Any]) -> str:
    return f"{task_title(row['dataset'], row['label'], row['model'])} · {row['image_size_px']} px"


def _target(row: Mapping[Any, Any]) -> str:
    return f"{percent(row['target_score'])} {primary_metric_named(row['headline']).words}"


def _time_cell(scan: str, notes: Footnotes) -> Cell:
    def cell(row: Mapping[Any, Any]) -> str:
        level = row["levels"].get(scan)
        if level is None:
            return NOTHING
        if level["no_time"]:
            return notes.refuse(level["no_time"])
        time = f"{minutes(level['time_s'])}{_interval(level, 'time_s', minutes)}"
        if level["encoding"] == "baseline" or math.isnan(level["speedup"]):
            return time
        return f"{time}: **{level['speedup']:.2f} x**{_interval(level, 'speedup', '{:.2f}'.format)}"

    return cell


def _interval(level: Mapping[Any, Any], name: str, show: Any) -> str:
    low, high = level[f"{name}_low"], level[f"{name}_high"]
    return "" if math.isnan(low) or math.isnan(high) else f" ({show(low)} to {show(high)})"


def minutes(seconds: float) -> str:
    """Format seconds with three significant figures: `45 s`, `12.3 min`, `3.4 h`."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{three_figures(seconds / size)} {unit}"
    return f"{three_figures(seconds)} s"


def _epoch_range(row: Mapping[Any, Any]) -> str:
    if row["num_reached"] < row["n"]:
        return f"reached by {row['num_reached']} of {row['n']}"
    low, high = row["epochs_min"], row["epochs_max"]
    return f"{row['epochs_mean']:.3g}" + ("" if low == high else f" ({low:g} to {high:g})")


_EPOCHS: dict[str, Cell] = {
    "task": _task,
    "scan": lambda row: describe_scan(row["scan"]),
    "seeds": lambda row: str(row["n"]),
    "epochs": _epoch_range,
    "evaluated every": lambda row: str(row["eval_every_epochs"]),
    "images/s without a limit": lambda row: three_figures(row["free_images_per_s"]),
}
