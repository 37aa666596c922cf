"""What a task tolerates: final accuracy against the quality of the images that it was trained on."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.figures.panels import panels, per_panel
from pcr_exp.analysis.figures.style import (
    MUTED,
    accuracy_axis,
    panel_title,
    scan_color,
    scan_label,
    scan_marker,
    scan_order,
    style,
)
from pcr_exp.analysis.tolerance import tolerance_fits

LEAST_SPAN_TOP1 = 0.10


def draw_accuracy_vs_mssim(points: pd.DataFrame) -> Figure:
    """Final top-1 against MS-SSIM of `tolerance_points`, one panel per dataset, label and model.

    Small: runs; large: mean over the seeds of a level; line: least squares over the runs, in words below
    the title. The baseline and group 10 have the same pixels, and lie at MS-SSIM 1.
    """
    with style():
        facts = list(per_panel(points))
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            fit = _draw_fit(ax, rows)
            for scan in scan_order(rows["scan"]):
                _draw_level(ax, rows[rows["scan"] == scan], scan)
            ax.set_xlabel("mean MS-SSIM of the scan level")
            accuracy_axis(ax)
            ax.set_ylabel("final validation top-1")
            _widen(ax)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5, fontsize=8, handletextpad=0.1)
            panel_title(ax, title, f"{subtitle}\n{fit}")
    return figure


def _draw_level(ax: Axes, level: pd.DataFrame, scan: str) -> None:
    color, marker = scan_color(scan), scan_marker(scan)
    if len(level) > 1:
        ax.plot(
            level["ms_ssim"], level["final_top1"], marker, color=color, markersize=4, alpha=0.45, zorder=3
        )
    ax.plot(
        level["ms_ssim"].mean(),
        level["final_top1"].mean(),
        marker,
        color=color,
        markersize=8,
        markeredgecolor="white",
        zorder=4,
        label=scan_label(scan),
    )


def _draw_fit(ax: Axes, rows: pd.DataFrame) -> str:
    """Draw the line, if there is one; returns it in words."""
    (fit,) = tolerance_fits(rows).to_dict("records")
    if fit["slope"] != fit["slope"]:
        return "no line: one MS-SSIM"
    ends = [rows["ms_ssim"].min(), rows["ms_ssim"].max()]
    line = [fit["slope"] * x + fit["intercept"] for x in ends]
    ax.plot(ends, line, color=MUTED, linewidth=1.2, zorder=2)
    return (
        f"top-1 = {fit['slope']:.2f} x MS-SSIM {'+' if fit['intercept'] >= 0 else '-'} "
        f"{abs(fit['intercept']):.2f}, r = {fit['r']:.2f}, n = {fit['num_runs']} runs"
    )


def _widen(ax: Axes) -> None:
    """Show at least 10 points of accuracy: on a finer scale noise looks like a trend."""
    low, high = ax.get_ylim()
    missing = max(0.0, LEAST_SPAN_TOP1 - (high - low))
    ax.set_ylim(low - missing / 2, high + missing / 2)
