"""Compare the losses that `tolerance` predicts with those of training, by task and by group.

`python -m experiments.pcr.tolerance_vs_training TRAINED... --tolerance FOLDER --out FOLDER` reads the answers
of `experiments.tolerance` and the deployment.csv of trained sets. A point is one task at one scan group, used
in full or at the group that it was trained on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from experiments.pcr.tolerance_slopes import measured_in
from experiments.results.made_by import recorded_hardware
from experiments.results.study import Study
from pcr_exp.analysis.caption import NOT_TIMED, Caption
from pcr_exp.analysis.figure import BELOW, footer, panel_title, panels, points_axis, save_figure
from pcr_exp.analysis.intervals import CONFIDENCE
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, style
from pcr_exp.analysis.tables import markdown_table, number, span
from pcr_exp.analysis.tolerance import WORDS
from pcr_exp.analysis.tolerance_page import META_FILE
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.errors import RunError
from pcr_exp.system.atomic import make_folder, write_atomic

NAME = "tolerance_vs_training"
TASK = ["dataset", "label"]
NUM_DRAWS = 10_000
_STYLES = [(INK, "o"), *OTHER_STYLES]


def foretold(tolerance: Sequence[Path], trained: Sequence[Path]) -> pd.DataFrame:
    """Return a row per task, trained model, deployment (`full`, `same`) and scan group that both have.

    Columns: `dataset`, `label`, `headline`, `model`, `deployment`, `group`; points lost by frozen features,
    `foretold`, with its standard error `foretold_error`; points lost by training, `lost`, with its standard
    error `lost_error`, `lost_freedom` (of its t) and `n` runs per level. Baselines, groups of all scans and
    settings with a single run are left out.

    Args:
        tolerance: Folders of `experiments.tolerance`.
        trained: Folders with a deployment.csv.

    Raises:
        RunError: no task at a group is in both.
    """
    answers = pd.concat([_answers(folder) for folder in tolerance], ignore_index=True)
    lost = pd.concat([_lost(folder) for folder in trained], ignore_index=True)
    rows = lost.merge(answers, on=[*TASK, "headline", "deployment", "group"], validate="many_to_one")
    if rows.empty:
        raise RunError(
            f"{', '.join(map(str, trained))}: no task and scan group that was measured in "
            f"{', '.join(map(str, tolerance))} as well. Wanted at least one in both."
        )
    return rows.sort_values([*TASK, "deployment", "group", "model"], ignore_index=True)


def _answers(folder: Path) -> pd.DataFrame:
    facts = json.loads((folder / META_FILE).read_text())["facts"]
    rows = pd.read_csv(folder / "answers.csv")
    rows = rows[rows["train_group"] < rows["train_group"].max()]  # all scans are the reference
    return pd.DataFrame(
        {
            **{name: facts[name] for name in (*TASK, "headline")},
            "deployment": rows["deployment"],
            "group": rows["train_group"],
            "foretold": 100 * rows["loss"],
            "foretold_error": 100 * (rows["loss_high"] - rows["loss_low"]) / 2 / stats.norm.ppf(_UPPER),
        }
    )


def _lost(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(folder / "deployment.csv")
    means = [str(name) for name in rows if str(name).endswith("_mean")]
    headline = next(name for name in means if name != "difference_mean")
    rows = rows[(rows["encoding"] != "baseline") & (rows["n"] > 1) & rows["tested_at"].isin(DEPLOYMENTS)]
    rows = rows.dropna(subset="group")  # policies and mixtures have none
    return pd.DataFrame(
        {
            **{name: rows[name] for name in (*TASK, "model")},
            "headline": headline.removesuffix("_mean"),
            "deployment": rows["tested_at"],
            "group": rows["group"].astype(int),
            "n": rows["n"],
            "lost": -100 * rows["difference_mean"],
            "lost_error": 100
            * rows["difference_ci95"]
            / stats.t.ppf(_UPPER, rows["difference_freedom"].astype(float)),
            "lost_freedom": rows["difference_freedom"],
        }
    )


_UPPER = 0.5 + CONFIDENCE / 2


def correlations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Spearman's rank correlation between predicted and actual losses, one row per deployment.

    `low` and `high` are the ends of 95 % of NUM_DRAWS draws of all points from their own errors, normal for
    predicted and Student's t for actual losses. They cover other images and seeds, but not other tasks.
    `within` is the lowest correlation within a task, `mean_error` the mean absolute difference in points, and
    `above` the share of points at which training lost more than predicted.
    """
    random = np.random.default_rng(0)
    found = []
    for deployment, part in rows.groupby("deployment", sort=True):
        foretold_points = part["foretold"].to_numpy()
        lost = part["lost"].to_numpy()
        shape = (NUM_DRAWS, len(part))
        drawn_foretold = foretold_points + part["foretold_error"].to_numpy() * random.standard_normal(shape)
        drawn_lost = lost + part["lost_error"].to_numpy() * random.standard_t(
            part["lost_freedom"].to_numpy(), shape
        )
        low, high = np.quantile(_spearman(drawn_foretold, drawn_lost), [1 - _UPPER, _UPPER])
        within = [
            stats.spearmanr(task["foretold"], task["lost"]).statistic
            for _, task in part.groupby(TASK)
            if len(task) > 1
        ]
        found.append(
            {
                "deployment": deployment,
                "num_points": len(part),
                "num_tasks": part.groupby(TASK).ngroups,
                "rank_correlation": stats.spearmanr(foretold_points, lost).statistic,
                "low": low,
                "high": high,
                "within": min(within, default=np.nan),
                "mean_error": np.abs(foretold_points - lost).mean(),
                "above": (lost > foretold_points).mean(),
            }
        )
    return pd.DataFrame(found)


def _spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank correlation of each row of two arrays [draws, points] without ties."""
    ranks = [points.argsort(axis=1).argsort(axis=1) for points in (left, right)]
    num_points = left.shape[1]
    squares = ((ranks[0] - ranks[1]) ** 2).sum(axis=1)
    return np.asarray(1 - 6 * squares / (num_points * (num_points**2 - 1)))


def correlations_page(rows: pd.DataFrame) -> str:
    """Return the table of `correlations` in Markdown."""
    columns = {
        "used": lambda row: WORDS[row["deployment"]],
        "points": lambda row: str(row["num_points"]),
        "tasks": lambda row: str(row["num_tasks"]),
        "rank correlation": _correlation,
        "lowest within a task": lambda row: number(row["within"], "{:.2f}".format),
        "mean absolute error, points": lambda row: f"{row['mean_error']:.1f}",
        "training lost more": lambda row: f"{100 * row['above']:.0f} %",
    }
    return markdown_table(correlations(rows), columns) + "\n"


def _correlation(row: Mapping[Any, Any]) -> str:
    return f"{row['rank_correlation']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def draw(rows: pd.DataFrame) -> Figure:
    """Draw points lost by training over predicted ones, a panel per deployment, a mark per task and group."""
    tasks = [*rows[TASK].drop_duplicates().itertuples(index=False, name=None)]
    summary = correlations(rows).to_dict("records")
    with style():
        figure, axes = panels(len(summary))
        for ax, found in zip(axes, summary, strict=True):
            part = rows[rows["deployment"] == found["deployment"]]
            for task, (color, marker) in zip(tasks, _STYLES, strict=False):
                _draw_task(ax, part[(part[TASK] == list(task)).all(axis=1)], " ".join(task), color, marker)
            for name in ("x", "y"):
                points_axis(ax, name)
            ends = [min(ax.get_xlim()[0], ax.get_ylim()[0]), max(ax.get_xlim()[1], ax.get_ylim()[1])]
            ax.plot(ends, ends, color=MUTED, linewidth=1, zorder=1)
            ax.set_xlabel("points lost by frozen features")
            ax.set_ylabel("points lost by training")
            panel_title(
                ax,
                WORDS[found["deployment"]],
                f"rank correlation {_correlation(found)}, {found['num_points']} points",
            )
        axes[0].legend(**BELOW)  # for both panels: task names are as wide as one
        footer(figure, "numbers: scan groups; line: as foretold; linear within 3 points, logarithmic beyond")
    return figure


def _draw_task(ax: Axes, rows: pd.DataFrame, words: str, color: str, marker: str) -> None:
    widths = [
        rows["foretold_error"] * stats.norm.ppf(_UPPER),
        rows["lost_error"] * stats.t.ppf(_UPPER, rows["lost_freedom"]),
    ]
    ax.errorbar(
        rows["foretold"],
        rows["lost"],
        xerr=widths[0],
        yerr=widths[1],
        color=color,
        marker=marker,
        linestyle="none",
        elinewidth=0.7,
        alpha=0.9,
        label=words,
    )
    for row in rows.to_dict("records"):
        place = (row["foretold"], row["lost"])
        ax.annotate(row["group"], place, xytext=(4, 3), textcoords="offset points", fontsize=7)


def write_comparison(tolerance: Path, trained: Sequence[Path], out: Path) -> pd.DataFrame:
    """Write rows, figure and table of all tasks in `tolerance` that were trained. Return the rows."""
    rows = foretold(measured_in(tolerance), trained)
    make_folder(out)
    caption = Caption(
        shows="What training lost, over what tolerance foretold",
        of=(f"{rows.groupby(TASK).ngroups} tasks",),
        n=f"n = {span(rows['n'])} runs a level, 95 % intervals",
        hardware=recorded_hardware(tolerance),
        storage=NOT_TIMED,
    )
    save_figure(draw, rows, out, NAME, caption)
    write_atomic(out / f"{NAME}.md", [correlations_page(rows).encode()])
    return rows


def compare(given: argparse.Namespace) -> None:
    """Write the comparison, and print its page."""
    print(correlations_page(write_comparison(given.tolerance, given.trained, given.out)))


main = Study(__doc__, "outputs/tolerance", compare, repeats=None, images=False)
main.add("trained", nargs="+", type=Path, help="folders with a deployment.csv")
main.add("--tolerance", type=Path, required=True, help="holds folders of experiments.tolerance")

if __name__ == "__main__":
    main()
