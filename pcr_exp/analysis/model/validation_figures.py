"""The throughput model held against measurements: its error, and the tolerance that was declared for it."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, StrMethodFormatter

from pcr_exp.analysis.core.figure import panel_title, panels
from pcr_exp.analysis.core.look import MUTED, scan_color, scan_marker, scan_order, scan_words, style


def draw_predicted_rates(cells: pd.DataFrame, tolerance: float) -> Figure:
    """One panel per number of processes of `validation.compare`: the prediction's error against its images/s.

    Point: error against the median of the measured rates; bar: against the largest and the smallest.
    """
    cells = cells[~cells["is_calibration"]]
    with style():
        counts = sorted(cells["num_processes"].unique())
        figure, axes = panels(len(counts))
        for ax, count in zip(axes, counts, strict=True):
            rows = cells[cells["num_processes"] == count]
            predicted = rows["predicted_images_per_s"]
            ax.vlines(
                predicted,
                predicted / rows["images_per_s_max"] - 1,
                predicted / rows["images_per_s_min"] - 1,
                color=[scan_color(scan) for scan in rows["scan"]],
                linewidth=1.4,
                zorder=3,
            )
            _draw_errors(ax, rows, "predicted_images_per_s", tolerance)
            ax.set_xlabel("predicted images/s, all processes (log scale)")
            within = int((rows["error"].abs() <= tolerance).sum())
            panel_title(
                ax,
                f"{count} process{'es' if count != 1 else ''}, one storage",
                f"{within} of {len(rows)} cells within {100 * tolerance:g} %, n = {rows['n'].min()}, median",
            )
    return figure


def draw_predicted_times(times: pd.DataFrame, tolerance: float) -> Figure:
    """One panel for all runs of `predicted_times.predict_times`; one point per run."""
    with style():
        figure, (ax,) = panels(1)
        _draw_errors(ax, times, "predicted_s", tolerance)
        ax.set_xlabel("predicted seconds to the target accuracy (log scale)")
        within = int((times["error"].abs() <= tolerance).sum())
        panel_title(
            ax, "time to accuracy", f"{within} of {len(times)} runs within {100 * tolerance:g} %; n = 1 each"
        )
    return figure


def _draw_errors(ax: Axes, rows: pd.DataFrame, x: str, tolerance: float) -> None:
    """Points by scan level, and the band of `tolerance` about no error."""
    ax.axhspan(-tolerance, tolerance, color=MUTED, alpha=0.18, linewidth=0)
    ax.axhline(0, color=MUTED, linewidth=1, zorder=1)
    handles = []
    for scan in scan_order(rows["scan"]):
        level = rows[rows["scan"] == scan]
        look: dict[str, Any] = {
            "marker": scan_marker(scan),
            "color": scan_color(scan),
            "markeredgecolor": "white",
        }
        ax.plot(level[x], level["error"], linestyle="none", markersize=7, zorder=4, **look)
        handles.append(Line2D([], [], linestyle="none", label=scan_words(scan), **look))
    low, high = rows[x].min() / 1.2, rows[x].max() * 1.2
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    _round_ticks(ax.xaxis, low, high)
    widest = max(2 * tolerance, 1.3 * rows["error"].abs().max())
    ax.set_ylim(-widest, widest)
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_ylabel("predicted / measured - 1")
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
    ax.legend(handles=handles, ncols=5, fontsize=8, handletextpad=0.1, **below)


def _round_ticks(axis: Axis, low: float, high: float) -> None:
    steps = (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 5, 7)
    ticks = [step * 10.0**k for k in range(7) for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
