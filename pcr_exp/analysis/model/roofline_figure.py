"""The roofline: what storage and compute allow, against the bytes of an image."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import (
    INK,
    MUTED,
    kilobytes,
    panel_title,
    scan_color,
    scan_label,
    scan_marker,
    style,
    ticks_in_bytes,
)
from pcr_exp.analysis.model.throughput_model import knee_image_bytes, roofline_images_per_s


def draw_roofline(predictions: pd.DataFrame) -> Figure:
    """One panel per model of `plan.predict` at one number of workers, on storage with a bandwidth.

    Line: min(compute, W / bytes), seeks in it where the storage has some; its knee marked, unless seeks alone
    hold compute up. Points: scan levels as predicted, below the line where
    decoding or requests are the limit. Both axes logarithmic.
    """
    with style():
        models = list(dict.fromkeys(predictions["model"]))
        figure, axes = panels(len(models))
        for ax, model in zip(axes, models, strict=True):
            _draw_panel(ax, predictions[predictions["model"] == model], model)
    return figure


def _draw_panel(ax: Axes, levels: pd.DataFrame, model: str) -> None:
    first = levels.iloc[0]
    compute = float(first["compute_images_per_s"])
    limits = {
        "bandwidth_bytes_per_s": float(first["bandwidth_mib_per_s"]) * 2**20,
        "compute_images_per_s": compute,
        "seek_s_per_image": float(first["seek_s_per_image"]),
    }
    knee = knee_image_bytes(**limits)
    shown = [*levels["image_bytes"], *([knee] if knee > 0 else [])]
    low, high = min(shown) / 1.6, max(shown) * 1.6
    sizes = np.geomspace(low, high, 200)
    roof = [roofline_images_per_s(size, **limits) for size in sizes]
    ax.plot(sizes, roof, color=MUTED, linewidth=1.4, zorder=2)
    if knee > 0:
        _mark_knee(ax, knee, compute)
    for row in levels.to_dict("records"):
        ax.plot(
            row["image_bytes"],
            row["images_per_s"],
            marker=scan_marker(row["scan"]),
            color=scan_color(row["scan"]),
            markeredgecolor="white",
            markersize=8,
            linestyle="none",
            zorder=4,
            label=f"{scan_label(row['scan'])} · {kilobytes(row['image_bytes'])} · {row['bound']}",
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    top = compute * 1.5
    ax.set_ylim(min(levels["images_per_s"].min(), roof[-1]) / 2.2, top)
    ticks_in_bytes(ax.xaxis, low, high)
    for axis_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        axis_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.tick_params(axis="y", which="minor", labelsize=7)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel("images/s, all workers (log scale)")
    ax.legend(loc="lower left", title="scan · bytes per image · limit", title_fontsize=8.5, alignment="left")
    workers = int(first["workers"])
    seek_ms = 1e3 * limits["seek_s_per_image"]
    panel_title(
        ax,
        f"roofline · {model}",
        f"predicted; {workers:,} worker{'s' if workers != 1 else ''}, "
        f"W = {first['bandwidth_mib_per_s']:,.0f} MiB/s"
        + (f", seeks of {seek_ms:.2g} ms per image" if seek_ms else ""),
    )


def _mark_knee(ax: Axes, knee: float, compute: float) -> None:
    ax.plot(knee, compute, marker="x", color=INK, markersize=8, markeredgewidth=1.8, zorder=5)
    ax.annotate(
        f"knee: {kilobytes(knee)}",
        (knee, compute),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        fontsize=8.5,
    )
