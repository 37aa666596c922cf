"""Figures of the throughput model: roofline, workers, and predictions beside measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter, StrMethodFormatter

from pcr_exp.analysis.core.cells import kilobytes
from pcr_exp.analysis.core.figure import BELOW, LEGEND_LINE_IN, panel_title, panels, rate_axis, ticks_in_bytes
from pcr_exp.analysis.core.look import (
    INK,
    MUTED,
    level_of,
    scan_levels,
    style,
)
from pcr_exp.analysis.model.plan import affordable
from pcr_exp.analysis.model.throughput_model import knee_image_bytes, roofline_images_per_s
from pcr_exp.system import MIB


def draw_roofline(predictions: pd.DataFrame) -> Figure:
    """One panel per model of `plan.predict` at one number of workers, on storage with a bandwidth.

    Line: min(compute, W / bytes), seeks in it where the storage has some; its knee marked, unless seeks alone
    hold compute up. Points: scan levels as predicted, below the line where
    decoding or requests are the limit. Both axes logarithmic.
    """
    return _panel_per_model(predictions, _draw_roofline)


def _panel_per_model(predictions: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame, str], None]) -> Figure:
    with style():
        models = list(dict.fromkeys(predictions["model"]))
        figure, axes = panels(len(models))
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 4 * LEGEND_LINE_IN)
        for ax, model in zip(axes, models, strict=True):
            draw(ax, predictions[predictions["model"] == model], model)
    return figure


def _draw_roofline(ax: Axes, levels: pd.DataFrame, model: str) -> None:
    first = levels.iloc[0]
    compute = float(first["compute_images_per_s"])
    limits = {
        "bandwidth_bytes_per_s": float(first["bandwidth_mib_per_s"]) * MIB,
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
            marker=level_of(row).marker,
            color=level_of(row).color,
            markeredgecolor="white",
            markersize=8,
            linestyle="none",
            zorder=4,
            label=f"{level_of(row).words} · {kilobytes(row['image_bytes'])} · {row['bound']}",
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    top = compute * 1.5
    ax.set_ylim(min(levels["images_per_s"].min(), roof[-1]) / 2.2, top)
    ticks_in_bytes(ax.xaxis, low, high)
    rate_axis(ax.yaxis)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel("images/s (log scale)")
    ax.legend(**BELOW, ncols=2, title="scan · bytes per image · limit", alignment="left")
    workers = int(first["workers"])
    seek_ms = 1e3 * limits["seek_s_per_image"]
    panel_title(
        ax,
        f"roofline · {model}",
        f"predicted; {workers:,} worker{'s' if workers != 1 else ''}, "
        f"W = {first['bandwidth_mib_per_s']:,.0f} MiB/s"
        + (f", {seek_ms:.2g} ms of seeks per image" if seek_ms else ""),
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


def draw_workers(predictions: pd.DataFrame) -> Figure:
    """One panel per model of `plan.predict` over numbers of workers; both axes logarithmic.

    Lines: images/s of all workers, per scan level; thin line: what the accelerators could train. The number
    above each size is the highest scan group that it can afford (`plan.affordable`), in brackets where
    accelerators wait at every group.
    """
    return _panel_per_model(predictions, _draw_workers)


def _draw_workers(ax: Axes, rows: pd.DataFrame, model: str) -> None:
    counts = sorted(rows["workers"].unique())
    compute = rows.groupby("workers")["compute_images_per_s"].first()
    ax.plot(compute.index, compute, color=MUTED, linewidth=1, zorder=2, label="what accelerators train")
    for level, of_level in scan_levels(rows):
        growing = of_level.sort_values("workers")
        ax.plot(
            growing["workers"],
            growing["images_per_s"],
            color=level.color,
            linestyle=level.dashes,
            marker=level.marker,
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=3,
            label=f"{level.words} · {kilobytes(growing['image_bytes'].iloc[0])}",
        )
    _name_affordable(ax, rows)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(counts[0] / 1.4, counts[-1] * 1.4)
    ax.set_ylim(top=float(compute.max()) * 3)
    ax.xaxis.set_major_locator(FixedLocator(counts))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xlabel("workers on one storage system (log scale)")
    ax.set_ylabel("images/s (log scale)")
    ax.tick_params(axis="x", labelsize=7.5)
    ax.legend(**BELOW, ncols=2)
    bandwidth = rows["bandwidth_mib_per_s"].iloc[0]
    facts = f"predicted; W = {bandwidth:,.0f} MiB/s\non top: the highest scan group that so many can afford"
    panel_title(ax, f"workers · {model}", facts)


def _name_affordable(ax: Axes, rows: pd.DataFrame) -> None:
    for row in affordable(rows).to_dict("records"):
        number = f"{row['group']:g}"
        ax.annotate(
            f"({number})" if row["waits"] else number,
            (row["workers"], 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -11),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            fontweight="bold",
            color=MUTED if row["waits"] else INK,
        )


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
                color=[level_of(row).color for row in rows.to_dict("records")],
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
    for level, of_level in scan_levels(rows):
        look: dict[str, Any] = {"marker": level.marker, "color": level.color, "markeredgecolor": "white"}
        ax.plot(of_level[x], of_level["error"], linestyle="none", markersize=7, zorder=4, **look)
        handles.append(Line2D([], [], linestyle="none", label=level.words, **look))
    low, high = rows[x].min() / 1.2, rows[x].max() * 1.2
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    _round_ticks(ax.xaxis, low, high)
    widest = max(2 * tolerance, 1.3 * rows["error"].abs().max())
    ax.set_ylim(-widest, widest)
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_ylabel("predicted / measured - 1")
    ax.legend(handles=handles, ncols=5, handletextpad=0.1, **BELOW)


def _round_ticks(axis: Axis, low: float, high: float) -> None:
    steps = (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 5, 7)
    ticks = [step * 10.0**k for k in range(7) for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
