"""Bits per value over training, pushes and pulls apart (3LC, figure of compressed size)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import MUTED, panel_title, style
from pcr_exp.analysis.gradients.curves import DIRECTIONS
from pcr_exp.analysis.gradients.look_figure import gradient_panels, in_order, look_of

_WITHOUT_ZERO_RUNS = 1.6


def draw_bits_over_training(curves: pd.DataFrame) -> Figure:
    """Of `bits_curves`, a panel per setting, mode and direction, a line per s.

    Dashed: 1.6 bits, five values in a byte, which is what they take without zero-run encoding.
    """
    groups = [
        (title, subtitle, f"{direction}, {mode}", alike)
        for title, subtitle, rows in gradient_panels(curves)
        for mode in ("server", "ddp")
        for direction in DIRECTIONS
        if len(alike := rows[(rows["mode"] == mode) & (rows["direction"] == direction)])
    ]
    with style():
        figure, axes = panels(len(groups), max_columns=2)
        for ax, (title, subtitle, way, rows) in zip(axes, groups, strict=True):
            for codec, line in in_order(rows).groupby("codec", sort=False):
                color = look_of(str(codec))["color"]
                alone = " (n = 1)" if line["n"].iloc[0] == 1 < rows["n"].max() else ""
                ax.plot(line["step"], line["coded_bits"], color=color, label=f"{codec}{alone}")
            ax.axhline(_WITHOUT_ZERO_RUNS, color=MUTED, linestyle="--", linewidth=1)
            ax.set_ylim(bottom=0)
            ax.set_xlabel("update")
            ax.set_ylabel("bits per value")
            ax.legend(loc="best", fontsize=8)
            panel_title(ax, way, f"{title}, {subtitle}")
    return figure
