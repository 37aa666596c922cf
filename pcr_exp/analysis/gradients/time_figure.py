"""Accuracy against training time on a slow network (3LC, its figures per bandwidth)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import wide_panels
from pcr_exp.analysis.core.style import accuracy_axis, panel_title, style, target_line
from pcr_exp.analysis.gradients.look_figure import gradient_links, look_of


def draw_accuracy_against_time(curves: pd.DataFrame) -> Figure:
    """Mean top-1 over seeds of `accuracy_curves`, a line per codec, a panel per mode, link and epochs."""
    with style():
        groups = list(gradient_links(curves))
        figure, axes = wide_panels(len(groups))
        for ax, (title, subtitle, link, rows) in zip(axes, groups, strict=True):
            for codec, line in rows.groupby("codec", sort=False):
                alone = " (n = 1)" if line["n"].iloc[0] == 1 < rows["n"].max() else ""
                look = look_of(str(codec))
                ax.plot(line["seconds"], line["val_top1"], label=f"{codec}{alone}", linewidth=1.5, **look)
            target_line(ax, rows["target_top1"].iloc[0])
            guessing_lines(ax, rows)
            ax.set_xlim(left=0)
            ax.set_xlabel("training + data wait (s)")
            accuracy_axis(ax)
            ax.legend(loc="center left", bbox_to_anchor=(1.1, 0.5), fontsize=8)
            panel_title(ax, f"{title}, {link}", subtitle)
    return figure
