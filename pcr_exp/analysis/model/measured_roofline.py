"""The roofline that was measured: images/s against bytes per image, under each bandwidth."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.cells import kilobytes
from pcr_exp.analysis.core.figure import footer, panel_title, panels, rate_axis, ticks_in_bytes
from pcr_exp.analysis.core.look import MUTED, scan_levels, style
from pcr_exp.analysis.model.throughput_model import knee_image_bytes, roofline_images_per_s
from pcr_exp.system import MIB

_BANDWIDTH = re.compile(r"([0-9.]+) MiB/s")


def roofline_points(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of `validation.compare` at a bandwidth and a model's speed, with `bandwidth_mib_per_s`.

    `model_images_per_s` is of each process; all of them share the storage.
    """
    limited = cells["storage"].str.fullmatch(_BANDWIDTH.pattern) & cells["model_images_per_s"].notna()
    chosen = cells[limited]
    return chosen.assign(bandwidth_mib_per_s=chosen["storage"].str.extract(_BANDWIDTH)[0].astype(float))


def draw_measured_roofline(points: pd.DataFrame) -> Figure:
    """A panel per bandwidth and number of processes of `roofline_points`, both axes logarithmic.

    Line: min(the model's speed, W / bytes), with its knee. Points: median of what was measured, bars: from
    the smallest to the largest. Points below the line are held up by decoding.
    """
    with style():
        groups: list[tuple[Any, pd.DataFrame]] = list(
            points.groupby(["bandwidth_mib_per_s", "num_processes"], sort=True)
        )
        figure, axes = panels(len(groups))
        width, height = figure.get_size_inches()
        figure.set_size_inches(width + 1.2, height + 0.5)
        for ax, ((bandwidth, processes), rows) in zip(axes, groups, strict=True):
            _draw(ax, rows, float(bandwidth), float(rows["model_images_per_s"].iloc[0]) * int(processes))
            several = f"{processes} process{'' if processes == 1 else 'es'}"
            panel_title(ax, f"{bandwidth:g} MiB/s", f"{several} on one storage")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        footer(figure, "median, smallest to largest; line: min(model, W / bytes per image)")
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, bandwidth_mib_per_s: float, model_images_per_s: float) -> None:
    limits = {
        "bandwidth_bytes_per_s": bandwidth_mib_per_s * MIB,
        "compute_images_per_s": model_images_per_s,
        "seek_s_per_image": 0.0,
    }
    knee = knee_image_bytes(**limits)
    low, high = min(rows["image_bytes"].min(), knee) / 1.6, max(rows["image_bytes"].max(), knee) * 1.6
    sizes = np.geomspace(low, high, 100)
    ax.plot(sizes, [roofline_images_per_s(size, **limits) for size in sizes], color=MUTED, linewidth=1.4)
    ax.plot(knee, model_images_per_s, "x", color=MUTED, markersize=7)
    ax.annotate(
        f"knee {kilobytes(knee)}",
        (knee, model_images_per_s),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
    for level, found in scan_levels(rows):
        middle = found["images_per_s_median"]
        ax.errorbar(
            found["image_bytes"],
            middle,
            [middle - found["images_per_s_min"], found["images_per_s_max"] - middle],
            color=level.color,
            marker=level.marker,
            markeredgecolor="white",
            markersize=8,
            linestyle="none",
            zorder=4,
            label=level.words,
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(rows["images_per_s_min"].min() / 1.6, model_images_per_s * 1.7)
    ticks_in_bytes(ax.xaxis, low, high)
    rate_axis(ax.yaxis)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel("images/s (log scale)")
