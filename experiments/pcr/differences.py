"""What each scan level loses: differences to the baseline with their intervals, a line per level.

Rows are those of `learning.deployment_table`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.figure import (
    BELOW,
    alone_mark,
    footer,
    marks_without_bars,
    new_figure,
    panel_title,
    points_axis,
)
from pcr_exp.analysis.frame import GROUP_KEYS, per_setting
from pcr_exp.analysis.primary_metric import headline_of
from pcr_exp.analysis.statistics import interval_words
from pcr_exp.analysis.style import INK, MUTED, OTHER_LOOKS, names_of, scan_levels, style

NAME = "differences"
_WORDS = {
    "full": "tested in full",
    "same": "tested as read in training",
    "renewed": "tested in full, BatchNorm renewed",
}
_LOOKS = dict(zip(_WORDS, [(INK, "o"), *OTHER_LOOKS[:2]], strict=True))
_WIDTH_IN, _LINE_IN, _AROUND_IN = 6.8, 0.42, 1.9
_BESIDE = 0.18
"""Of a line, between two ways of testing."""


def draw_differences(table: pd.DataFrame) -> Figure:
    """Points against the baseline tested in full: a panel per setting, a line per scan level.

    A panel has a mark per fidelity of the test with its 95 % interval, where there is one.
    """
    groups = [(title, rows) for title, _, rows in per_setting(compared(table), GROUP_KEYS)]
    heights = [_AROUND_IN + _LINE_IN * rows["scan"].nunique() for _, rows in groups]
    with style():
        figure = new_figure(_WIDTH_IN, sum(heights))
        axes = figure.subplots(len(groups), squeeze=False, height_ratios=heights)[:, 0]
        for ax, (title, rows) in zip(axes, groups, strict=True):
            _draw_panel(ax, rows)
            panel_title(ax, title, f"95 % intervals: {interval_words(rows)}")
        footer(figure, "linear within 3 points, logarithmic beyond")
    return figure


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that have a difference to a baseline of the same seed; not the baseline's own."""
    return table[table["difference_mean"].notna() & (table["encoding"] != "baseline")]


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    levels = [level for level, _ in scan_levels(rows)]
    names, most = names_of(levels), rows["n"].max()
    ways = [way for way in _WORDS if (rows["tested_at"] == way).any()]
    labels = []
    for place, level in enumerate(levels):
        alike = rows[rows["scan"] == level.label]
        labels.append(names[level] + alone_mark(alike["n"].max(), most))
        for number, way in enumerate(ways):
            for row in alike[alike["tested_at"] == way].to_dict("records"):
                color, marker = _LOOKS[way]
                ci95 = row["difference_ci95"]
                ax.errorbar(
                    100 * row["difference_mean"],
                    place + _BESIDE * (2 * number - len(ways) + 1),
                    xerr=None if pd.isna(ci95) else 100 * ci95,
                    color=color,
                    marker=marker,
                    markersize=6.5,
                    elinewidth=1.3,
                    capsize=3,
                    linestyle="none",
                    label=None if place else _WORDS[way],
                )
    ax.axvline(0, color=MUTED, linewidth=1, zorder=1)
    ax.set_yticks(range(len(levels)), labels)
    ax.set_ylim(len(levels) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    points_axis(ax, "x")
    ax.set_xlabel(f"points of {headline_of(rows).words} against the baseline in full")
    marks, words = marks_without_bars(ax)
    named = {word: mark for mark, word in zip(marks, words, strict=True) if word.startswith("tested")}
    ax.legend(named.values(), named.keys(), **BELOW, ncols=len(named))
