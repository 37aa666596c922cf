"""Quality against scan group, and against the bytes that it costs."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import MUTED, panel_title, scan_color, style, ticks_in_bytes
from pcr_exp.measuring.quality import summarise_quality

NAMED_GROUPS = (1, 2, 5)
"""Points that carry their number: the groups that the paper plots, but for the reference itself."""


def draw_mssim_vs_scan(quality: pd.DataFrame) -> Figure:
    """MS-SSIM of quality rows (columns of `measure_quality` and `dataset`): two panels per dataset.

    Left against the scan group, right against mean bytes per image (log scale). Point: mean; bar: 5th to 95th
    percentile over images.
    """
    with style():
        datasets = sorted(quality["dataset"].unique())
        figure, axes = panels(2 * len(datasets), max_columns=2)
        for i, dataset in enumerate(datasets):
            summary = summarise_quality(quality[quality["dataset"] == dataset])
            against_group, against_bytes = axes[2 * i], axes[2 * i + 1]
            _draw_points(against_group, summary, summary["group"])
            against_group.set_xticks(summary["group"])
            against_group.set_xlabel("scan group")
            _draw_points(against_bytes, summary, summary["bytes_mean"])
            low, high = summary["bytes_mean"].min() / 1.25, summary["bytes_mean"].max() * 1.25
            against_bytes.set_xscale("log")
            against_bytes.set_xlim(low, high)
            ticks_in_bytes(against_bytes.xaxis, low, high)
            against_bytes.set_xlabel("mean bytes per image (log scale)")
            facts = f"n = {summary['n'].min()} images, mean and 5th to 95th percentile"
            panel_title(against_group, f"{dataset} · quality per scan group", facts)
            panel_title(against_bytes, f"{dataset} · quality per byte", facts)
            against_bytes.sharey(against_group)
    return figure


def _draw_points(ax: Axes, summary: pd.DataFrame, x: pd.Series) -> None:
    ax.plot(x, summary["ms_ssim_mean"], color=MUTED, linewidth=1, zorder=2)
    columns = (summary[name] for name in ("group", "ms_ssim_mean", "ms_ssim_p5", "ms_ssim_p95"))
    for position, group, mean, low, high in zip(x, *columns, strict=True):
        color = scan_color(f"group_{group}")
        ax.vlines(position, low, high, color=color, linewidth=2.2, alpha=0.55, zorder=3)
        ax.plot(position, mean, "o", color=color, markersize=7, markeredgecolor="white", zorder=4)
        if group in NAMED_GROUPS:
            label = f"{mean:.3f}"
            ax.annotate(label, (position, mean), xytext=(5, -12), textcoords="offset points", fontsize=8.5)
    ax.set_ylabel("MS-SSIM against all scans")
    ax.set_ylim(top=1.01)
