"""How large images are when read up to each scan group."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, scan_color, style, ticks_in_bytes

MEAN = {"marker": "D", "markerfacecolor": "white", "markeredgecolor": INK, "markersize": 4}


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
                box.set(facecolor=scan_color(f"group_{group}"), edgecolor="none")
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
