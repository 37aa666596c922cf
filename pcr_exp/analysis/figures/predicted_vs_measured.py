"""The throughput model held against measurements: on the diagonal it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter

from pcr_exp.analysis.figures.panels import panels
from pcr_exp.analysis.figures.style import (
    MUTED,
    panel_title,
    scan_color,
    scan_label,
    scan_marker,
    scan_order,
    style,
)


def draw_predicted_rates(cells: pd.DataFrame, tolerance: float) -> Figure:
    """One panel per number of processes of `validation.compare`; point: median, bar: smallest to largest."""
    cells = cells[~cells["is_calibration"]]
    with style():
        counts = sorted(cells["num_processes"].unique())
        figure, axes = panels(len(counts))
        for ax, count in zip(axes, counts, strict=True):
            rows = cells[cells["num_processes"] == count]
            for row in rows.to_dict("records"):
                ax.vlines(
                    row["predicted_images_per_s"],
                    row["images_per_s_min"],
                    row["images_per_s_max"],
                    color=scan_color(row["scan"]),
                    linewidth=1.6,
                    zorder=3,
                )
            _draw(ax, rows, "predicted_images_per_s", "images_per_s_median", tolerance)
            ax.set_xlabel("predicted images/s")
            ax.set_ylabel("measured images/s")
            within = int((rows["error"].abs() <= tolerance).sum())
            panel_title(
                ax,
                f"{count} process{'es' if count != 1 else ''}, one storage",
                f"{within} of {len(rows)} cells within {100 * tolerance:g} %, median of {rows['n'].min()}",
            )
    return figure


def draw_predicted_times(times: pd.DataFrame, tolerance: float) -> Figure:
    """One panel for all runs of `predicted_times.predict_times`; one point per run."""
    with style():
        figure, (ax,) = panels(1)
        _draw(ax, times, "predicted_s", "measured_s", tolerance)
        ax.set_xlabel("predicted seconds to the target accuracy")
        ax.set_ylabel("measured seconds")
        within = int((times["error"].abs() <= tolerance).sum())
        panel_title(
            ax, "time to accuracy", f"{within} of {len(times)} runs within {100 * tolerance:g} %; n = 1 each"
        )
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, x: str, y: str, tolerance: float) -> None:
    """Points by scan level, the diagonal, and the band of `tolerance` about it; both axes logarithmic."""
    low = min(rows[x].min(), rows[y].min()) / 1.25
    high = max(rows[x].max(), rows[y].max()) * 1.25
    line = np.array([low, high])
    ax.fill_between(
        line, line / (1 + tolerance), line / (1 - tolerance), color=MUTED, alpha=0.18, linewidth=0
    )
    ax.plot(line, line, color=MUTED, linewidth=1, zorder=1)
    handles = []
    for scan in scan_order(rows["scan"]):
        level = rows[rows["scan"] == scan]
        look: dict[str, Any] = {
            "marker": scan_marker(scan),
            "color": scan_color(scan),
            "markeredgecolor": "white",
        }
        ax.plot(level[x], level[y], linestyle="none", markersize=7, zorder=4, **look)
        handles.append(Line2D([], [], linestyle="none", label=scan_label(scan), **look))
    for scale, limits in ((ax.set_xscale, ax.set_xlim), (ax.set_yscale, ax.set_ylim)):
        scale("log")
        limits(low, high)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.set_minor_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.set_tick_params(which="minor", labelsize=7)
    ax.legend(handles=handles, loc="lower right")
