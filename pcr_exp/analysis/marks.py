"""Marks that figures share: lines at chance level, the legend of scan groups, and differences by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pcr_exp.analysis.figure import BELOW, MARGIN, note, points_axis
from pcr_exp.analysis.primary_metric import chance_level_of, metric_of
from pcr_exp.analysis.style import INK, MUTED, color_in_script, describe_scan, group_marker
from pcr_exp.config.describe import in_script
from pcr_exp.training.task import TOP1

_SAME, _NEAR = 0.0005, 0.1
"""Accuracies nearer than the first share a line; names of lines nearer than the second would overlap."""

_DASH_DOTTED, _DOTTED = "-.", (0, (1, 2))

_NAME: dict[str, Any] = {"color": MUTED, "fontsize": 7, "zorder": 5}

_ON_POINTS = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}


class ChanceLevel(NamedTuple):
    """A chance level, 0..1, with the name and the style of its line."""

    at: float
    words: str
    dashes: Any


def chance_levels(rows: pd.DataFrame) -> list[ChanceLevel]:
    """Return the share of the most frequent class (dash-dotted), and chance, 1 / classes (dotted).

    Metrics other than top-1 have a line `guessing` instead. Unknown levels are left out.

    Args:
        rows: Rows of one dataset and label, with `headline`, `majority_share` and `num_classes`.
    """
    if metric_of(rows) is not TOP1:
        reached = {level for row in rows.to_dict("records") if (level := chance_level_of(row))}
        return [ChanceLevel(level, "guessing", _DOTTED) for level in sorted(reached)]
    shares = sorted(set(rows["majority_share"].dropna()))
    chances = sorted({1 / classes for classes in rows["num_classes"].dropna() if classes})
    others = [chance for chance in chances if all(abs(share - chance) >= _SAME for share in shares)]
    same = {share for share in shares if any(abs(share - chance) < _SAME for chance in chances)}
    return [
        *(
            ChanceLevel(share, "majority\n= chance" if share in same else "majority", _DASH_DOTTED)
            for share in shares
        ),
        *(ChanceLevel(chance, "chance", _DOTTED) for chance in others),
    ]


def chance_lines(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw `chance_levels` of rows on axes with accuracies on y, named in the right margin."""
    levels = chance_levels(rows)
    for level in levels:
        ax.axhline(level.at, color=MUTED, linewidth=0.9, linestyle=level.dashes, zorder=1)
        words, side = f"{level.words}\n{_percent(level.at)}", _side(level, levels)
        note(ax, words, (1, level.at), (3, 0), MARGIN, va=side, **_NAME)


def _side(level: ChanceLevel, levels: list[ChanceLevel]) -> str:
    """Return where a line is named: of two lines near each other, the upper above, the lower below."""
    if any(0 < level.at - other.at < _NEAR for other in levels):
        return "bottom"
    return "top" if any(0 < other.at - level.at < _NEAR for other in levels) else "center"


def upright_chance_lines(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw `chance_levels` of rows on axes with accuracies on x, named beside the line's foot."""
    levels = chance_levels(rows)
    for level in levels:
        below = [other for other in levels if 0 < level.at - other.at < _NEAR]
        named = [] if any(0 < other.at - level.at < _NEAR for other in levels) else [*below, level]
        words = "\n".join(f"{one.words} {_percent(one.at)}".replace("\n", " ") for one in named)
        ax.axvline(level.at, color=MUTED, linewidth=0.9, linestyle=level.dashes, zorder=1)
        at, side = (level.at, 0), {"rotation": 90, "va": "bottom", "bbox": _ON_POINTS}
        note(ax, words, at, (2, 2), ("data", "axes fraction"), **side, **_NAME)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def group_handles(groups: Sequence[int], script: str) -> list[Line2D]:
    """Return legend entries for scan groups of a script that are drawn as points."""

    def handle(group: int) -> Line2D:
        label, color = describe_scan(in_script(f"group_{group}", script)), color_in_script(group, script)
        return Line2D([], [], linestyle="none", marker=group_marker(group), color=color, label=label)

    return [handle(group) for group in groups]


def group_legend(ax: Axes, groups: Sequence[int], script: str) -> None:
    """Name scan groups below the axes, in one row, without the script that they share."""
    handles = group_handles(groups, script)
    for group, handle in zip(groups, handles, strict=True):
        handle.set_label(describe_scan(f"group_{group}"))
    ax.legend(handles=handles, ncols=len(groups), handletextpad=0.1, **BELOW)


def name_lines(ax: Axes, names: Sequence[str]) -> None:
    """Name the lines of axes that have y = 0, 1, 2, ... from top to bottom."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def difference_lines(ax: Axes, rows: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw points against a reference (`paired_difference`) with 95 % intervals, a named line per row."""
    points, ci95 = (100 * rows[f"difference_{part}"].astype(float) for part in ("mean", "ci95"))
    ax.errorbar(points, range(len(rows)), xerr=ci95, fmt="o", color=INK, capsize=3, elinewidth=1.3)
    ax.axvline(0, color=MUTED, linewidth=1, zorder=1)
    name_lines(ax, names)
    points_axis(ax, "x")
