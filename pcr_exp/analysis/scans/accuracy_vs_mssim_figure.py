"""What a task tolerates: final accuracy against the quality of the images that it was trained on."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import panels, per_panel
from pcr_exp.analysis.core.statistics import half_width
from pcr_exp.analysis.core.style import (
    INK,
    MUTED,
    accuracy_axis,
    panel_title,
    scan_color,
    scan_label,
    scan_marker,
    scan_order,
    style,
)
from pcr_exp.analysis.scans.tolerance import ALL_SCANS, tolerance_fits

LEAST_SPAN_TOP1 = 0.10


def draw_accuracy_vs_mssim(points: pd.DataFrame) -> Figure:
    """Final top-1 against MS-SSIM of `tolerance_points`, one panel per dataset, label and model.

    Small: seeds; large: mean over the seeds of a level, with its 95 % interval if there are two; line: as
    `tolerance_fits`, in words below the title, or why there is none. The baseline and the last scan group
    have the same pixels, and are one point at MS-SSIM 1.
    """
    with style():
        facts = list(per_panel(points))
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            fit = _draw_fit(ax, rows)
            for scan in scan_order(rows["scan"]):
                _draw_level(ax, rows[rows["scan"] == scan], scan)
            guessing_lines(ax, rows)
            ax.set_xlabel("mean MS-SSIM of the scan level")
            accuracy_axis(ax)
            ax.set_ylabel("last validation top-1")
            _widen(ax)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5, fontsize=8, handletextpad=0.1)
            panel_title(ax, title, f"{subtitle}\n{_measured_on(rows)}\n{fit}")
    return figure


def _draw_level(ax: Axes, level: pd.DataFrame, scan: str) -> None:
    look: dict[str, Any] = {"color": INK, "marker": "s"}
    if scan != ALL_SCANS:
        look = {"color": scan_color(scan), "marker": scan_marker(scan)}
    if len(level) > 1:
        ax.plot(level["ms_ssim"], level["final_top1"], **look, linestyle="", markersize=4, alpha=0.45)
    mean = level["final_top1"].mean()
    width = half_width(level["final_top1"])
    ax.errorbar(
        level["ms_ssim"].mean(),
        mean,
        None if width != width else width,
        **look,
        linestyle="",
        markersize=8,
        markeredgecolor="white",
        elinewidth=1,
        capsize=3,
        zorder=4,
        label=scan_label(scan),
    )


def _measured_on(rows: pd.DataFrame) -> str:
    measured = rows[rows["scan"] != ALL_SCANS]
    where = " / ".join(sorted(set(measured["ms_ssim_of"]))) or "all scans only"
    scales = measured["num_scales"].dropna()
    low, high = (int(scales.min()), int(scales.max())) if len(scales) else (0, 0)
    count = f", {low}{f' to {high}' if low < high else ''} scales" if high else ""
    return f"MS-SSIM of {where}{count}"


def _draw_fit(ax: Axes, rows: pd.DataFrame) -> str:
    """Draw the line, if there is one; returns it in words."""
    (fit,) = tolerance_fits(rows).to_dict("records")
    if fit["no_line"]:
        return str(fit["no_line"])
    ends = [rows["ms_ssim"].min(), rows["ms_ssim"].max()]
    line = [fit["slope"] * x + fit["intercept"] for x in ends]
    ax.plot(ends, line, color=MUTED, linewidth=1.2, zorder=2)
    return (
        f"slope {fit['slope']:.2f} ± {fit['slope_ci95']:.2f} (95 %) top-1 per MS-SSIM, "
        f"{fit['num_levels']} levels, r = {fit['r']:.2f}"
    )


def _widen(ax: Axes) -> None:
    """Show at least 10 points of accuracy: on a finer scale noise looks like a trend."""
    low, high = ax.get_ylim()
    missing = max(0.0, LEAST_SPAN_TOP1 - (high - low))
    ax.set_ylim(low - missing / 2, high + missing / 2)
