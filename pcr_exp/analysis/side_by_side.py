"""Cost and score of each run, side by side: dots for runs, a bar for the mean of a scan level's seeds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.accuracy import per_panel
from pcr_exp.analysis.figure import (
    MARGIN,
    PANEL_WIDTH_IN,
    footer,
    new_figure,
    note,
    panel_title,
    percent_axis,
    points_axis,
    single_run_mark,
)
from pcr_exp.analysis.frame import GROUP_KEYS, seconds_of
from pcr_exp.analysis.marks import upright_chance_lines
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.statistics import distinct_seeds, half_width, repeat_of
from pcr_exp.analysis.style import MUTED, ScanLevel, names_of, scan_levels, style
from pcr_exp.system import MIB

MEASURES = {
    "time_to_target_s": "seconds to the target",
    "all_s": "seconds for all epochs",
    "record_mib": "MiB of records read, probes included",
    "final_score": "last validation {headline}",
}
DIFFERENCE = "difference_points"
_LESS = "points of {headline}\nagainst the baseline"
DIFFERENCES = "lines: 95 % intervals of mean differences, over the seeds that the baseline has"
_SECONDS = ("time_to_target_s", "all_s")
_ROOM = 1.06
"""Length of an axis from 0, relative to its largest value, so that no marker is cut."""
_LINE_IN, _MARGIN_IN = 0.27, 1.25


def with_totals(runs: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `run_frame` with three more columns.

    `all_s`: seconds of training, data wait and probes; NaN if no seconds may be shown. `record_mib`: MiB of
    records that training and probes read. `difference_points`: the final score minus the baseline's of the
    same seed and setting, in points; NaN without a baseline.
    """
    keys = [*GROUP_KEYS, *repeat_of(runs)]
    baselines = runs[runs["encoding"] == "baseline"].drop_duplicates(keys).set_index(keys)["final_score"]
    theirs = runs[keys].join(baselines, on=keys)["final_score"]
    return runs.assign(
        difference_points=100 * (runs["final_score"] - theirs),
        all_s=seconds_of(runs).where(runs["timing_excluded_because"] == ""),
        record_mib=(runs["record_bytes"] + runs["probe_bytes"]) / MIB,
    )


def draw_side_by_side(runs: pd.DataFrame) -> Figure:
    """Draw MEASURES from left to right, with a dot per run and a bar for the mean of a level's seeds.

    If the setting has a baseline, differences to it, paired by seed, replace the scores. They have 95 %
    intervals of their means. On an axis of scores, one point would not be visible.

    Levels are in the order of `scan_levels`, as in other legends. If some seeds of a level missed the target,
    only the others are drawn, with a note of how many missed it. Seconds that may not be shown are left out,
    and so are their panels if no run has any.

    Args:
        runs: `with_totals` of `run_frame`; one row of panels per group of GROUP_KEYS.
    """
    with style():
        facts = list(per_panel(runs))
        silent = (runs["timing_excluded_because"] != "").all()
        shown = {name: label for name, label in MEASURES.items() if not (silent and name in _SECONDS)}
        heights = [_MARGIN_IN + _LINE_IN * rows["scan"].nunique() for _, _, rows in facts]
        figure = new_figure(0.62 * PANEL_WIDTH_IN * len(shown), sum(heights))
        grid = figure.subplots(len(facts), len(shown), squeeze=False, height_ratios=heights)
        for axes, (title, subtitle, rows) in zip(grid, facts, strict=True):
            compared = rows[DIFFERENCE].notna().any()
            for ax, (name, label) in zip(axes, shown.items(), strict=True):
                measure = DIFFERENCE if compared and name == "final_score" else name
                _draw_measure(ax, rows, measure)
                label = _LESS if measure == DIFFERENCE else label
                ax.set_xlabel(label.format(headline=metric_of(rows).words))
                if ax is not axes[0]:
                    ax.set_yticklabels([])
            if compared:
                points_axis(axes[-1], "x")
            else:
                percent_axis(axes[-1].xaxis)
                upright_chance_lines(axes[-1], rows)
            words = f"{subtitle}; target {rows['target_score'].iloc[0]:.0%}"
            panel_title(axes[0], title, words, across=len(shown))
            lines = axes[0].texts[-1].get_text().count("\n")
            panel_title(axes[1], " ", " " + "\n " * lines)  # height for the words, which extend across it
            for text in (axes[0].title, *axes[0].texts[-1:]):
                text.set_in_layout(False)
        footer(figure, f"a shape per seed, an upright bar for their mean; {DIFFERENCES}")
    return figure


def _draw_measure(ax: Axes, rows: pd.DataFrame, measure: str) -> None:
    levels = scan_levels(rows)
    for place, (level, runs) in enumerate(levels):
        values, color = runs[measure], level.color
        there = values.dropna()
        if measure == DIFFERENCE:
            values = there
        look: dict[str, Any] = {"color": color, "markeredgecolor": "white", "zorder": 3}
        ax.plot(there, [place] * len(there), level.marker, **look)
        if len(there) == len(values):
            ax.plot([values.mean()] * 2, [place - 0.36, place + 0.36], color=color, linewidth=2.2, zorder=2)
        else:
            missed, side = _why_missing(runs, measure), {"ha": "right", "va": "center"}
            note(ax, missed, (1, place), (-3, 0), MARGIN, fontsize=7.5, color=MUTED, **side)
        if measure == DIFFERENCE:
            _draw_interval(ax, place, level, runs)
    most = max(len(runs) for _, runs in levels)
    called = names_of([level for level, _ in levels])
    names = [called[level] + single_run_mark(len(runs), most) for level, runs in levels]
    ax.set_yticks(range(len(levels)), names, fontsize=8.5)
    ax.set_ylim(len(levels) - 0.4, -0.6)
    if measure == DIFFERENCE:
        ax.axvline(0, color=MUTED, linewidth=1, zorder=1)
    elif measure != "final_score":
        widest = float(rows[measure].max())
        ax.set_xlim(0, _ROOM * widest if widest > 0 else None)


def _draw_interval(ax: Axes, place: int, level: ScanLevel, runs: pd.DataFrame) -> None:
    """Draw the 95 % interval of a level's mean difference; for the baseline, write its score."""
    if level.encoding == "baseline":
        score = f"{100 * distinct_seeds(runs)['final_score'].mean():.1f}%"
        note(ax, score, (0, place), (7, 0), va="center", fontsize=8)
        return
    differences = distinct_seeds(runs)[DIFFERENCE].dropna()
    mean, half = differences.mean(), half_width(differences)
    if half == half:
        ax.hlines(place, mean - half, mean + half, color=level.color, linewidth=1.2, alpha=0.7, zorder=1)


def _why_missing(level: pd.DataFrame, measure: str) -> str:
    if (level["timing_excluded_because"] != "").any():
        return "not said"
    if measure == "time_to_target_s" and (level["target_excluded_because"] != "").any():
        return "target is guessed"
    missing = int(level[measure].isna().sum())
    return f"{missing} of {len(level)} did not"
