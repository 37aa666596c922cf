"""The headline: validation accuracy against the seconds that training and waiting for data took."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import panels, per_panel
from pcr_exp.analysis.core.seeds import draw_scan_levels
from pcr_exp.analysis.core.style import accuracy_axis, panel_title, style, target_line

MAX_INSIDE = 6
"""Scan levels whose legend has room within its panel."""
SECONDS_LABEL = "training + data wait (s)"


def draw_time_to_accuracy(curves: pd.DataFrame) -> Figure:
    """Time to accuracy of evaluation rows (`curves.eval_curves`), one panel per dataset, label and model.

    x is train_s + wait_s + probe_s: evaluation is off the clock. Runs whose seconds may not be said are left
    out (`with_seconds`); there must be others.
    """
    return draw_accuracy(with_seconds(curves), "seconds", SECONDS_LABEL)


def with_seconds(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows of `eval_curves` whose time may be said, with it in a column `seconds`."""
    timed = curves[curves["no_seconds"] == ""]
    return timed.assign(seconds=timed["train_s"] + timed["wait_s"] + timed["probe_s"])


def draw_accuracy(curves: pd.DataFrame, x: str, x_label: str) -> Figure:
    """Validation top-1 against the column `x`, with each panel's target and what guessing reaches."""
    with style():
        facts = list(per_panel(curves))
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            draw_accuracy_panel(ax, rows, x, x_label)
            panel_title(ax, title, subtitle)
    return figure


def draw_accuracy_panel(ax: Axes, rows: pd.DataFrame, x: str, x_label: str) -> None:
    """One panel of `draw_accuracy`, without its title."""
    draw_scan_levels(ax, rows, x, "val_top1")
    for target in sorted(rows["target_top1"].unique()):
        target_line(ax, target)
    guessing_lines(ax, rows)
    ax.set_xlim(left=0)
    ax.set_xlabel(x_label)
    accuracy_axis(ax)
    look: dict[str, Any] = {"title": "scan · bytes per image", "title_fontsize": 8.5, "alignment": "left"}
    if rows["scan"].nunique() <= MAX_INSIDE:
        ax.legend(loc="best", **look)
        return
    # More would lie on the curves. Nothing is below a single row of panels: they keep their height.
    legend = ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, **look)
    grid = ax.get_gridspec()
    legend.set_in_layout(grid is not None and grid.nrows > 1)
