"""More workers on one storage system: how fast they get together, and which scan group they can afford."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, StrMethodFormatter

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import (
    INK,
    MUTED,
    kilobytes,
    panel_title,
    scan_color,
    scan_dashes,
    scan_label,
    scan_marker,
    scan_order,
    style,
)
from pcr_exp.analysis.model.plan import affordable


def draw_workers(predictions: pd.DataFrame) -> Figure:
    """One panel per model of `plan.predict` over numbers of workers; both axes logarithmic.

    Lines: images/s of all workers, per scan level; thin line: what the accelerators could train. The number
    above each size is the highest scan group that it can afford (`plan.affordable`), in brackets where
    accelerators wait at every group.
    """
    with style():
        models = list(dict.fromkeys(predictions["model"]))
        figure, axes = panels(len(models))
        for ax, model in zip(axes, models, strict=True):
            _draw_panel(ax, predictions[predictions["model"] == model], model)
    return figure


def _draw_panel(ax: Axes, rows: pd.DataFrame, model: str) -> None:
    counts = sorted(rows["workers"].unique())
    compute = rows.groupby("workers")["compute_images_per_s"].first()
    ax.plot(compute.index, compute, color=MUTED, linewidth=1, zorder=2, label="what accelerators train")
    for scan in scan_order(rows["scan"]):
        level = rows[rows["scan"] == scan].sort_values("workers")
        ax.plot(
            level["workers"],
            level["images_per_s"],
            color=scan_color(scan),
            linestyle=scan_dashes(scan),
            marker=scan_marker(scan),
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=3,
            label=f"{scan_label(scan)} · {kilobytes(level['image_bytes'].iloc[0])}",
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
    ax.set_ylabel("images/s, all workers (log scale)")
    ax.tick_params(axis="x", labelsize=7.5)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8)
    bandwidth = rows["bandwidth_mib_per_s"].iloc[0]
    facts = f"predicted; W = {bandwidth:,.0f} MiB/s\non top: the highest scan group that so many can afford"
    panel_title(ax, f"workers · {model}", facts)


def _name_affordable(ax: Axes, rows: pd.DataFrame) -> None:
    for row in affordable(rows).to_dict("records"):
        number = row["scan"].removeprefix("group_")
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
