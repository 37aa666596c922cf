"""Images per second at each scan level, measured and bounded, under several throttles."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, scan_color, scan_label, scan_order, style
from pcr_exp.analysis.throughput.throughput import bounds, free_running, unlimited
from pcr_exp.measuring.peers.catalog import is_ours

_BELOW, _ABOVE = 0.6, 1.6


def draw_throughput_vs_scan(summary: pd.DataFrame) -> Figure:
    """One panel per decoder of ours; `summary` is of `summarise_throughput`.

    Point: median, bar: smallest to largest, coloured by scan level. Thin lines: min(the same loader without a
    limit, bandwidth / bytes per image). Logarithmic: groups and throttles differ by factors.
    """
    ours = summary[summary["loader"].map(is_ours)]
    with style():
        decodes = list(dict.fromkeys(ours["decode"]))
        figure, axes = panels(len(decodes), max_columns=2)
        for ax, decode in zip(axes, decodes, strict=True):
            _draw_panel(ax, ours[ours["decode"] == decode])
            facts = f"n = {ours['n'].min()}, median, smallest to largest; line: min(compute, W / bytes)"
            panel_title(ax, f"throughput per scan level, decode={decode}", facts)
    return figure


def _draw_panel(ax: Axes, lines: pd.DataFrame) -> None:
    scans = scan_order(lines["loader"])
    position = {scan: i for i, scan in enumerate(scans)}
    free = unlimited(free_running(lines))
    _draw_points(ax, free, position)
    _name_line(ax, free, position, "no limit")
    bounded = bounds(lines)
    for storage, limited in bounded.groupby("storage", sort=False):
        limited = limited.sort_values("loader", key=lambda names: names.map(position))
        ax.plot(
            limited["loader"].map(position), limited["bound_images_per_s"], color=MUTED, linewidth=1, zorder=2
        )
        _draw_points(ax, limited, position)
        _name_line(ax, limited, position, str(storage))
    ax.set_yscale("log")
    # Ticks at 1, 2 and 5 times powers of ten, in limits wide enough to hold one.
    ax.set_ylim(_BELOW * lines["images_per_s_min"].min(), _ABOVE * lines["images_per_s_max"].max())
    ax.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:,.0f}"))
    ax.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    ax.set_xticks(range(len(scans)), [scan_label(scan) for scan in scans])
    ax.set_xlim(-0.4, len(scans) - 0.2)
    ax.set_ylabel("images/s (log scale)")
    ax.grid(axis="x", visible=False)


def _draw_points(ax: Axes, lines: pd.DataFrame, position: dict[str, int]) -> None:
    for row in lines.to_dict("records"):
        x, color = position[row["loader"]], scan_color(row["loader"])
        ax.vlines(x, row["images_per_s_min"], row["images_per_s_max"], color=color, linewidth=2.2, zorder=3)
        ax.plot(
            x, row["images_per_s_median"], "o", color=color, markersize=6, markeredgecolor="white", zorder=4
        )


def _name_line(ax: Axes, lines: pd.DataFrame, position: dict[str, int], name: str) -> None:
    """Beside the baseline's point, or the first there is."""
    first = min(lines.to_dict("records"), key=lambda row: position[row["loader"]])
    ax.annotate(
        name,
        (position[first["loader"]], first["images_per_s_median"]),
        xytext=(6, -11),
        textcoords="offset points",
        fontsize=8,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
        zorder=5,
    )
