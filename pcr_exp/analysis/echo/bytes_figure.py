"""Echoing together with PCR: more fidelity, or more fresh images, for the same bytes?"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import wide_panels
from pcr_exp.analysis.core.style import (
    MUTED,
    accuracy_axis,
    panel_title,
    scan_color,
    scan_label,
    scan_order,
    style,
    target_line,
    ticks_in_bytes,
)
from pcr_exp.analysis.echo.look_figure import ORDER, echo_panels, look_of, name_of, variant_of

_DASHES = ["-", (0, (1, 1)), (0, (4, 2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1))]


def draw_top1_against_bytes(curves: pd.DataFrame) -> Figure:
    """Mean validation top-1 over seeds against record bytes read so far, a line per echo and scan level.

    The vertical line is the byte budget that all lines have in common. Colour: the scan level that is read
    first; dashes and shape: the echo.

    Args:
        curves: One row per evaluation: PANEL_KEYS, SERIES_KEYS, `n`, `num_rates`, `target_top1`, and means
            over seeds of `record_bytes` and `val_top1`; and what guessing reaches.
    """
    with style():
        facts = list(echo_panels(curves))
        figure, axes = wide_panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            ends = []
            scans = scan_order(rows["scan"])
            lines = rows.groupby(["scan", "variant", "factor", "buffer", "repeat_groups", "epochs"])
            for _, line in sorted(lines, key=lambda line: scans.index(line[1]["scan"].iloc[0])):
                first = line.iloc[0].to_dict()
                variant = variant_of(first)
                alone = " · n = 1" if first["n"] == 1 < rows["n"].max() else ""
                ax.plot(
                    line["record_bytes"],
                    line["val_top1"],
                    color=scan_color(first["scan"]),
                    linestyle=_DASHES[ORDER.index(variant)],
                    marker=look_of(variant)["marker"],
                    markeredgecolor="white",
                    label=f"{scan_label(first['scan'])} · {name_of(first, with_factor=True)}{alone}",
                )
                ends.append(float(line["record_bytes"].max()))
            ax.axvline(min(ends), color=MUTED, linewidth=1, linestyle="--", zorder=1)
            target_line(ax, rows["target_top1"].iloc[0])
            guessing_lines(ax, rows)
            ax.set_xscale("log")
            ticks_in_bytes(ax.xaxis, float(rows["record_bytes"].min()) / 1.2, max(ends) * 1.2)
            ax.set_xlabel("bytes of records read (log scale)")
            accuracy_axis(ax)
            ax.legend(loc="center left", bbox_to_anchor=(1.17, 0.5), fontsize=8)
            panel_title(ax, title, subtitle)
    return figure
