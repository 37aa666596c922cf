"""Validation score against the bytes that were read, a line per echo and scan level."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.figure import (
    BELOW,
    MAX_CURVES,
    accuracy_axis,
    footer,
    panel_title,
    panels,
    same_limits,
    target_line,
    ticks_in_bytes,
    wide_panels,
)
from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.look import MUTED, level_of, scan_levels, style
from pcr_exp.analysis.echo.look import dashes_of, echo_panels, name_of, variant_of
from pcr_exp.analysis.echo.table import BASELINE

_LINE = ["scan", "variant", "factor", "buffer", "repeat_groups", "epochs"]


def draw_score_against_bytes(curves: pd.DataFrame) -> Figure:
    """Mean validation score over seeds against record bytes read so far, a line per echo and scan level.

    The vertical line is the byte budget that all lines have in common. Colour and shape: the scan level that
    is read first; dashes, and whether shapes are filled: the echo.

    Args:
        curves: One row per evaluation: PANEL_KEYS, SERIES_KEYS, `n`, `num_rates`, `target_score`, and means
            over seeds of `record_bytes` and `val_score`; and what guessing reaches.
    """
    with style():
        facts = [
            (title, subtitle, part, rows.groupby(_LINE)["record_bytes"].max())
            for title, subtitle, rows in echo_panels(curves)
            for part in _few_lines(rows)
        ]
        figure, axes = panels(len(facts)) if len(facts) > 1 else wide_panels(1)
        for ax, (title, subtitle, rows, ends) in zip(axes, facts, strict=True):
            lines = rows.groupby(_LINE)
            for _, line in sorted(lines, key=lambda line: level_of(line[1].iloc[0].to_dict()).place):
                first = line.iloc[0].to_dict()
                variant, level = variant_of(first), level_of(first)
                alone = " · n = 1" if first["n"] == 1 < rows["n"].max() else ""
                # Beside scan levels, of which one is called baseline.
                echo = "no echo" if variant == BASELINE else name_of(first, with_factor=True)
                ax.plot(
                    line["record_bytes"],
                    line["val_score"],
                    color=level.color,
                    linestyle=dashes_of(variant),
                    marker=level.marker,
                    markerfacecolor=level.color if variant == BASELINE else "white",
                    markeredgecolor="white" if variant == BASELINE else level.color,
                    label=f"{level.words} · {echo}{alone}",
                )
            ax.axvline(ends.min(), color=MUTED, linewidth=1, linestyle="--", zorder=1)
            target_line(ax, rows["target_score"].iloc[0])
            guessing_lines(ax, rows)
            ax.set_xscale("log")
            ax.set_xlabel("bytes of records read (log scale)")
            accuracy_axis(ax, rows)
            ax.legend(**BELOW)
            panel_title(ax, title, subtitle)
        same_limits(axes, [(title, subtitle) for title, subtitle, _, _ in facts])
        for ax in axes:
            ticks_in_bytes(ax.xaxis, *ax.get_xlim())
        footer(figure, "upright line: the bytes that all lines have read; means over seeds")
    return figure


def _few_lines(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows as they are, or, of more than MAX_CURVES lines, apart by the scan level that is read first."""
    if rows.groupby(_LINE).ngroups <= MAX_CURVES:
        return [rows]
    return [part for _, part in scan_levels(rows)]
