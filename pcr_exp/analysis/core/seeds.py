"""How the runs of one scan level are drawn: their seeds thin, their mean thick."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from pcr_exp.analysis.core.style import (
    kilobytes,
    scan_color,
    scan_dashes,
    scan_marker,
    scan_order,
    short_scan_label,
)


def draw_scan_levels(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """`y` against `x` for every scan level: one thin line per run, one thick line for their mean.

    The mean of both is taken at each epoch that all seeds of the level have evaluated; a level's legend entry
    gives the mean bytes that it reads per image, and says so where it is of one run among means of more.
    """
    most = rows.groupby("scan")["run_id"].nunique().max()
    for order, scan in enumerate(scan_order(rows["scan"])):
        level = rows[rows["scan"] == scan]
        # The dashed baseline lies on top: a scan level that coincides with it shows through its gaps.
        look: dict[str, Any] = {
            "color": scan_color(scan),
            "linestyle": scan_dashes(scan),
            "zorder": 4 - order / 20,
        }
        alone = " · n = 1" if level["run_id"].nunique() == 1 < most else ""
        if level["run_id"].nunique() > 1:
            for _, run in level.groupby("run_id"):
                ax.plot(run[x], run[y], **{**look, "linewidth": 0.8, "alpha": 0.4, "linestyle": "-"})
        mean = mean_over_seeds(level, x, y)
        ax.plot(
            mean[x],
            mean[y],
            marker=scan_marker(scan),
            markevery=max(1, len(mean) // 8),
            markeredgecolor="white",
            markeredgewidth=0.7,
            label=f"{short_scan_label(scan)} · {kilobytes(level['mean_image_bytes'].mean())}{alone}",
            **look,
        )


def mean_over_seeds(level: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean x and y per epoch, over the epochs that every run of the level has."""
    num_runs = level["run_id"].nunique()
    by_epoch = level.groupby("epoch")
    mean = by_epoch[sorted({x, y} - {"epoch"})].mean().reset_index()
    return mean[mean["epoch"].map(by_epoch["run_id"].nunique()) == num_runs]
