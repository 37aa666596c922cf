"""What each run took and reached, side by side: dots for runs, a bar for the mean of a scan level's seeds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.figure import (
    PANEL_WIDTH_IN,
    alone_mark,
    footer,
    new_figure,
    panel_title,
    percent_axis,
)
from pcr_exp.analysis.core.guessing import upright_guessing_lines
from pcr_exp.analysis.core.headline import headline_of
from pcr_exp.analysis.core.look import MUTED, names_of, scan_levels, style
from pcr_exp.analysis.core.runs_table import seconds_of
from pcr_exp.analysis.scans.figures import per_panel
from pcr_exp.system import MIB

MEASURES = {
    "time_to_target_s": "seconds to the target",
    "all_s": "seconds for all epochs",
    "record_mib": "MiB of records read, probes included",
    "final_score": "last validation {headline}",
}
_SECONDS = ("time_to_target_s", "all_s")
_LINE_IN, _MARGIN_IN = 0.27, 1.25


def with_totals(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows of `runs_frame` with two columns more.

    `all_s`: training, waiting and probing; NaN where no seconds may be said. `record_mib`: the MiB of records
    that training and probes read.
    """
    return runs.assign(
        all_s=seconds_of(runs).where(runs["no_seconds"] == ""),
        record_mib=(runs["record_bytes"] + runs["probe_bytes"]) / MIB,
    )


def draw_side_by_side(runs: pd.DataFrame) -> Figure:
    """Dots for runs, a bar for the mean of a level's seeds; MEASURES from left to right.

    Levels stand in the order of `scan_levels`, which also is that of the legends elsewhere. A level that has
    seeds which did not reach the target shows those that did, and says how many did not. Seconds that may not
    be said are not shown; where none may, nor are their panels.

    Args:
        runs: `with_totals` of `runs_frame`; one row of panels per GROUP_KEYS.
    """
    with style():
        facts = list(per_panel(runs))
        silent = (runs["no_seconds"] != "").all()
        shown = {name: label for name, label in MEASURES.items() if not (silent and name in _SECONDS)}
        heights = [_MARGIN_IN + _LINE_IN * rows["scan"].nunique() for _, _, rows in facts]
        figure = new_figure(0.62 * PANEL_WIDTH_IN * len(shown), sum(heights))
        grid = figure.subplots(len(facts), len(shown), squeeze=False, height_ratios=heights)
        for axes, (title, subtitle, rows) in zip(grid, facts, strict=True):
            for ax, (measure, label) in zip(axes, shown.items(), strict=True):
                _draw_measure(ax, rows, measure)
                ax.set_xlabel(label.format(headline=headline_of(rows).words))
                if ax is not axes[0]:
                    ax.set_yticklabels([])
            percent_axis(axes[-1].xaxis)
            upright_guessing_lines(axes[-1], rows)
            words = f"{subtitle}; target {rows['target_score'].iloc[0]:.0%}"
            panel_title(axes[0], title, words, across=len(shown))
            lines = axes[0].texts[-1].get_text().count("\n")
            panel_title(axes[1], " ", " " + "\n " * lines)  # height for the words, which run into its width
            for text in (axes[0].title, *axes[0].texts[-1:]):
                text.set_in_layout(False)
        footer(figure, "a shape per seed, an upright bar for their mean")
    return figure


def _draw_measure(ax: Axes, rows: pd.DataFrame, measure: str) -> None:
    levels = scan_levels(rows)
    for place, (level, runs) in enumerate(levels):
        values, color = runs[measure], level.color
        there = values.dropna()
        look: dict[str, Any] = {"color": color, "markeredgecolor": "white", "zorder": 3}
        ax.plot(there, [place] * len(there), level.marker, **look)
        if len(there) == len(values):
            ax.plot([values.mean()] * 2, [place - 0.36, place + 0.36], color=color, linewidth=2.2, zorder=2)
        else:
            missed = _why_missing(runs, measure)
            ax.annotate(
                missed,
                (1, place),
                xycoords=("axes fraction", "data"),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
                color=MUTED,
            )
    most = max(len(runs) for _, runs in levels)
    called = names_of([level for level, _ in levels])
    names = [called[level] + alone_mark(len(runs), most) for level, runs in levels]
    ax.set_yticks(range(len(levels)), names, fontsize=8.5)
    ax.set_ylim(len(levels) - 0.4, -0.6)
    if measure != "final_score":
        ax.set_xlim(left=0)


def _why_missing(level: pd.DataFrame, measure: str) -> str:
    if (level["no_seconds"] != "").any():
        return "not said"
    if measure == "time_to_target_s" and (level["no_target"] != "").any():
        return "target is guessed"
    missing = int(level[measure].isna().sum())
    return f"{missing} of {len(level)} did not"
