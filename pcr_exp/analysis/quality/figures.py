"""Quality and bytes per scan group, and what a decode mode changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.figure import BELOW, panel_title, panels, ticks_in_bytes
from pcr_exp.analysis.core.look import INK, MUTED, OTHER_LOOKS, fallback_look, style
from pcr_exp.analysis.core.run_quality import WHOLE, ms_ssim_words
from pcr_exp.analysis.core.scan_colors import group_color, group_marker
from pcr_exp.measuring.quality import summarise_crops, summarise_quality

NAMED_GROUPS = (1, 2, 5)
"""Points that carry their number: the groups that the paper plots, but for the reference itself."""
MEAN = {"marker": "D", "markerfacecolor": "white", "markeredgecolor": INK, "markersize": 4}
REFERENCE_MODE = "libjpeg"
_MODE_LOOKS = {
    "libjpeg": (INK, "s", (0, (4.0, 1.6))),
    "unsmoothed": (*OTHER_LOOKS[1], "-"),
    "scaled": (*OTHER_LOOKS[0], "-"),
}
"""By mode: colour, marker, dashes."""


def draw_mssim_vs_scan(quality: pd.DataFrame) -> Figure:
    """MS-SSIM of whole images (columns of `measure_quality` and `dataset`): two panels per dataset.

    Left against the scan group, right against mean bytes per image (log scale). Point: mean; bar: 5th to 95th
    percentile over images.
    """
    with style():
        datasets = sorted(quality["dataset"].unique())
        figure, axes = panels(2 * len(datasets), max_columns=2)
        for i, dataset in enumerate(datasets):
            summary = summarise_quality(quality[quality["dataset"] == dataset])
            against_group, against_bytes = axes[2 * i], axes[2 * i + 1]
            _draw_quality(against_group, summary, summary["group"])
            against_group.set_xticks(summary["group"])
            against_group.set_xlabel("scan group")
            _draw_quality(against_bytes, summary, summary["bytes_mean"])
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


def _in_order(modes: pd.Series) -> list[str]:
    """Decode modes: ours in the order of their looks, then others by name."""
    there = set(modes)
    return [*(mode for mode in _MODE_LOOKS if mode in there), *sorted(there - set(_MODE_LOOKS))]


def _draw_quality(ax: Axes, summary: pd.DataFrame, x: pd.Series) -> None:
    ax.plot(x, summary["ms_ssim_mean"], color=MUTED, linewidth=1, zorder=2)
    columns = (summary[name] for name in ("group", "ms_ssim_mean", "ms_ssim_p5", "ms_ssim_p95"))
    for position, group, mean, low, high in zip(x, *columns, strict=True):
        color = group_color(group)
        ax.vlines(position, low, high, color=color, linewidth=2.2, alpha=0.55, zorder=3)
        look: dict[str, Any] = {"markersize": 7, "markeredgecolor": "white", "zorder": 4}
        ax.plot(position, mean, group_marker(group), color=color, **look)
        if group in NAMED_GROUPS:
            label = f"{mean:.3f}"
            ax.annotate(label, (position, mean), xytext=(5, -12), textcoords="offset points", fontsize=8.5)
    ax.set_ylabel(ms_ssim_words([WHOLE]))
    ax.set_ylim(top=1.01)


def draw_bytes_per_group(quality: pd.DataFrame) -> Figure:
    """Box plot of an image's bytes per scan group (columns id, group, bytes, dataset), one panel per dataset.

    Box: quartiles and median; whiskers: 5th to 95th percentile; diamond: mean. The share above each box is
    mean bytes over the mean bytes of the highest group measured. Logarithmic: images differ by factors.
    """
    with style():
        datasets = sorted(quality["dataset"].unique())
        figure, axes = panels(len(datasets))
        for ax, dataset in zip(axes, datasets, strict=True):
            rows = quality[quality["dataset"] == dataset]
            groups = sorted(rows["group"].unique())
            sizes = [rows.loc[rows["group"] == group, "bytes"].to_numpy() for group in groups]
            boxes = ax.boxplot(
                sizes,
                positions=range(len(groups)),
                tick_labels=[str(group) for group in groups],
                whis=(5, 95),
                showfliers=False,
                showmeans=True,
                widths=0.62,
                patch_artist=True,
                medianprops={"color": "white", "linewidth": 1.6},
                meanprops=MEAN,
                whiskerprops={"color": MUTED},
                capprops={"color": MUTED},
            )
            for box, group in zip(boxes["boxes"], groups, strict=True):
                box.set(facecolor=group_color(group), edgecolor="none")
            whiskers = [float(np.percentile(size, 95)) for size in sizes]
            for position, (size, whisker) in enumerate(zip(sizes, whiskers, strict=True)):
                ax.annotate(
                    f"{100 * size.mean() / sizes[-1].mean():.3g}%",
                    (position, whisker),
                    xytext=(0, 4),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    color=MUTED,
                )
            low, high = float(np.percentile(sizes[0], 5)) / 1.3, max(whiskers) * 1.3
            ax.set_yscale("log")
            ax.set_ylim(low, high)
            ticks_in_bytes(ax.yaxis, low, high)
            ax.grid(axis="x", visible=False)
            ax.set_xlabel("read up to scan group")
            ax.set_ylabel("bytes per image (log scale)")
            num_images = rows["id"].nunique()
            panel_title(ax, dataset, f"n = {num_images} images; % = mean, of group {groups[-1]}")
    return figure


def draw_decode_modes(crops: pd.DataFrame, name: str) -> Figure:
    """MS-SSIM of random crops (columns of `measure_crops` and `dataset`): two panels per dataset.

    Left: the mean over images per scan group. Right: each mode's mean difference to `libjpeg`, with two
    standard errors. `name` is MS-SSIM's, with the size of the crops.
    """
    with style():
        datasets = sorted(crops["dataset"].unique())
        figure, axes = panels(2 * len(datasets), max_columns=2)
        for i, dataset in enumerate(datasets):
            of_dataset = crops[crops["dataset"] == dataset]
            summary = summarise_crops(of_dataset)
            means, differences = axes[2 * i], axes[2 * i + 1]
            positions = range(len(summary))
            for mode in _in_order(of_dataset["decode"]):
                color, marker, dashes = _MODE_LOOKS.get(mode) or (*fallback_look(mode), "-")
                look: dict[str, Any] = {"color": color, "marker": marker, "linestyle": dashes, "label": mode}
                means.plot(positions, summary[f"{mode}_mean"], **look)
                if f"{mode}_minus_{REFERENCE_MODE}" in summary:
                    differences.errorbar(
                        positions,
                        summary[f"{mode}_minus_{REFERENCE_MODE}"],
                        yerr=2 * summary[f"{mode}_minus_{REFERENCE_MODE}_sem"],
                        capsize=3,
                        **look,
                    )
            facts = f"n = {summary['n'].min()} images, one random crop each"
            panel_title(means, f"{dataset} · crops by decode mode", f"{facts}; mean")
            panel_title(
                differences, f"{dataset} · difference to {REFERENCE_MODE}", f"{facts}; mean ± 2 std errors"
            )
            differences.axhline(0, color=MUTED, linewidth=1, linestyle=":", zorder=1)
            means.set_ylabel(name)
            differences.set_ylabel(f"{name} less {REFERENCE_MODE}'s")
            for ax in (means, differences):
                ax.set_xticks(positions, [str(group) for group in summary["group"]])
                ax.set_xlabel("scan group")
                if ax.get_legend_handles_labels()[0]:
                    ax.legend(**BELOW, ncols=3)
    return figure
