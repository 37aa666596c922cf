"""The Pareto front of accuracy against bytes read, for policies and static levels.

A level is on the Pareto front if no other level scores as high with fewer bytes, or higher with as many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.figure import (
    BELOW,
    HIGHEST_SHARE,
    LEGEND_LINE_IN,
    enlarge,
    footer,
    marks_without_bars,
    panel_title,
    panels,
    percent_axis,
    points_axis,
    same_limits,
    single_run_mark,
    ticks_in_bytes,
)
from pcr_exp.analysis.frame import LEVEL, per_setting
from pcr_exp.analysis.marks import chance_levels, chance_lines
from pcr_exp.analysis.page import Output
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.runs import evaluations_at
from pcr_exp.analysis.statistics import distinct_seeds, half_width, paired_difference, spread
from pcr_exp.analysis.style import MUTED, level_of, style

TESTED_AT = {"full": "in full", "same": "at the same", "renewed": "in full, BatchNorm renewed"}
"""Values of `training.eval_groups`, and their words in tables."""

NAME = "accuracy_vs_bytes"

FRONT_KEYS = ["dataset", "label", "model", "image_px"]
"""Columns that compared runs share. Epochs may differ, because the cost is counted in bytes."""

FRONT_COLUMNS = [
    *(*FRONT_KEYS, *LEVEL, "recipe", "setting", "tested_at", "n", "headline", "majority_share"),
    *("num_classes", "score_mean", "score_min", "score_max", "score_ci95"),
    *("difference_n", "difference_mean", "difference_ci95"),
    *("read_bytes_mean", "read_bytes_min", "read_bytes_max", "image_bytes_mean", "on_front"),
]

_SHORT_RECIPE = 42
"""Longest name, in letters, that fits beside another one in the legend."""

_FILLS = ("full", "none", "left", "top")
"""Fill styles that distinguish settings of one policy, which share its colour and marker."""

_WORDS = {
    "full": "tested in full",
    "same": "tested as it read last in training",
    "renewed": "tested in full, BatchNorm renewed",
}


def front_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return FRONT_COLUMNS of `run_frame`: one row per task, recipe and test fidelity, over `n` seeds.

    `score_*` is the primary metric of the finished model, and `score_ci95` half its 95 % interval.
    `difference_*` is the difference to the baseline of the same seed, tested in full; NaN if a task has no
    baseline or several. `read_bytes_*` is what the whole run read, probes included, and `image_bytes_mean`
    the same per image seen. Tasks without a policy, or with a single recipe, have no rows.
    """
    found = pd.DataFrame([row for run in frame.to_dict("records") for row in _rows(run)])
    if found.empty:
        return pd.DataFrame(columns=FRONT_COLUMNS)
    parts = []
    for _, task in found.groupby([*FRONT_KEYS, "headline"], sort=True):
        if not task["group"].isna().any() or task["recipe"].nunique() < 2:
            continue
        by_recipe = task.groupby(["recipe", "setting", "tested_at"], sort=True)
        reference = task[(task["encoding"] == "baseline") & (task["tested_at"] == "full")]
        if reference["recipe"].nunique() > 1 or reference["setting"].nunique() > 1:
            reference = reference.head(0)
        part = pd.DataFrame([_over_seeds(seeds, reference) for _, seeds in by_recipe])
        part["on_front"] = [_is_on_front(row, part) for row in part.to_dict("records")]
        parts.append(part.sort_values(["tested_at", "read_bytes_mean", "recipe"]))
    if not parts:
        return pd.DataFrame(columns=FRONT_COLUMNS)
    return pd.concat(parts, ignore_index=True)[FRONT_COLUMNS]


def draw_front(table: pd.DataFrame) -> Figure:
    """Draw points against the baseline over bytes read, from `front_table`: a panel per task and fidelity.

    Scores are drawn instead if there is no single baseline. The line is the Pareto front; bars are 95 %
    intervals over seeds. The panels of a task have the same limits.
    """
    groups = [
        (title, tested_at, rows[rows["tested_at"] == tested_at])
        for title, _, rows in per_setting(table, [*FRONT_KEYS, "headline"])
        for tested_at in TESTED_AT
        if (rows["tested_at"] == tested_at).any()
    ]
    with style():
        figure, axes = panels(len(groups), max_columns=2)
        for ax, (title, tested_at, rows) in zip(axes, groups, strict=True):
            _draw_panel(ax, rows)
            panel_title(ax, title, _WORDS[tested_at])
        same_limits(axes, [title for title, _, _ in groups])
        for ax, (_, _, rows) in zip(axes, groups, strict=True):
            if _is_compared(rows):
                points_axis(ax, "y")
        lines = max(-(-len(rows) // _legend_columns(rows)) for _, _, rows in groups)
        num_rows = -(-len(groups) // 2)
        enlarge(figure, height_in=num_rows * lines * LEGEND_LINE_IN)
        footer(
            figure, "line: the front, which nothing cheaper reaches; bars: 95 % intervals over seeds or folds"
        )
    return figure


def write_front(output: Output) -> None:
    """Save `accuracy_vs_bytes` if policies were trained and there is something to compare them with."""
    table = front_table(output.frame)
    if len(table):
        drawn = output.frame.merge(table[FRONT_KEYS].drop_duplicates(), on=FRONT_KEYS)
        output.figure(NAME, "Final accuracy over the bytes that runs read", table, draw_front, drawn)


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    compared = _is_compared(rows)
    measure, scale = ("difference", 100) if compared else ("score", 1)
    front = rows[rows["on_front"]].sort_values("read_bytes_mean")
    ax.plot(front["read_bytes_mean"], scale * front[f"{measure}_mean"], color=MUTED, linewidth=1.2, zorder=2)
    drawn: Counter[tuple[str, str]] = Counter()
    for row in rows.to_dict("records"):
        level = level_of(row)
        fill = _FILLS[drawn[level.color, level.marker] % len(_FILLS)]
        drawn[level.color, level.marker] += 1
        ax.errorbar(
            row["read_bytes_mean"],
            scale * row[f"{measure}_mean"],
            None if pd.isna(row[f"{measure}_ci95"]) else scale * row[f"{measure}_ci95"],
            color=level.color,
            marker=level.marker,
            markersize=13 if level.marker == "*" else 8,  # a star of the same size has a third of the area
            markeredgecolor="white" if fill == "full" else level.color,
            markerfacecoloralt="white",
            fillstyle=fill,
            elinewidth=1,
            capsize=3,
            linestyle="none",
            # A policy that chose one level for all epochs coincides with that level and is drawn on top.
            zorder=5 if math.isnan(level.group) else 4,
            label=row["recipe"].replace("_", " ") + single_run_mark(row["n"], rows["n"].max()),
        )
    low, high = rows["read_bytes_mean"].min() / 1.3, rows["read_bytes_mean"].max() * 1.3
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ticks_in_bytes(ax.xaxis, low, high)
    ax.set_xlabel("bytes read in training, probes included (log scale)")
    ax.legend(*marks_without_bars(ax), **BELOW, ncols=_legend_columns(rows))
    if compared:
        ax.set_ylabel(f"points of {metric_of(rows).words}\nagainst the baseline in full")
        ax.axhline(0, color=MUTED, linewidth=1, zorder=1)
        return
    chance_lines(ax, rows)
    ax.set_ylabel(f"last validation {metric_of(rows).words}")
    percent_axis(ax.yaxis)
    ax.set_ylim(top=min(ax.get_ylim()[1], HIGHEST_SHARE))
    if levels := chance_levels(rows):  # the lowest name stays above the tick labels
        ax.set_ylim(bottom=min(ax.get_ylim()[0], min(level.at for level in levels) - 0.07))


def _is_compared(rows: pd.DataFrame) -> bool:
    return bool(rows["difference_mean"].notna().all())


def _legend_columns(rows: pd.DataFrame) -> int:
    """Return one legend column if a recipe is too long to fit beside another, else two."""
    return 2 if rows["recipe"].str.len().max() <= _SHORT_RECIPE else 1


def _rows(run: Mapping[Any, Any]) -> list[dict[str, Any]]:
    read_bytes = run["record_bytes"] + run["probe_bytes"]
    sizes_px = run["config"]["training"].get("input_sizes")
    inputs = f", inputs {', '.join(map(str, sizes_px))} px" if sizes_px else ""
    kept = (*FRONT_KEYS, *LEVEL, "setting", "seed", "fold", "headline", "majority_share", "num_classes")
    return [
        {
            **{key: run[key] for key in kept},
            "recipe": run["scan"] + inputs,
            "tested_at": tested_at,
            "score": evaluations[-1]["val_score"],
            "read_bytes": read_bytes,
            "image_bytes": read_bytes / run["samples"],
        }
        for tested_at in TESTED_AT
        if (evaluations := evaluations_at(tested_at, run["rows"]))
    ]


def _over_seeds(runs: pd.DataFrame, reference: pd.DataFrame) -> dict[str, Any]:
    seeds = distinct_seeds(runs)
    first: dict[Any, Any] = seeds.iloc[0].to_dict()
    return {
        **first,
        "n": len(seeds),
        **spread(seeds, ["score", "read_bytes", "image_bytes"]),
        "score_ci95": half_width(seeds["score"]),
        **paired_difference(seeds, reference, "score"),
    }


def _is_on_front(row: Mapping[Any, Any], rows: pd.DataFrame) -> bool:
    """Return whether no row of equal fidelity scores as high with fewer bytes, or higher with as many."""
    alike = rows[rows["tested_at"] == row["tested_at"]]
    fewer = alike["read_bytes_mean"] < row["read_bytes_mean"]
    more = alike["score_mean"] > row["score_mean"]
    not_worse = (alike["score_mean"] >= row["score_mean"]) & (
        alike["read_bytes_mean"] <= row["read_bytes_mean"]
    )
    return not ((fewer | more) & not_worse).any()
