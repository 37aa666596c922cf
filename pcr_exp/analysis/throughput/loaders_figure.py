"""Bars of images per second: loaders side by side, and one file per image beside records."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import MUTED, panel_title, scan_color, style
from pcr_exp.analysis.throughput.throughput import REFERENCE, free_running, unlimited
from pcr_exp.measuring.peers.catalog import is_ours, title_of

PEER_COLOR = "#9aa5b1"


def draw_loaders(summary: pd.DataFrame) -> Figure:
    """All loaders without a limit, as fast as they go, and their ratio to ImageFolder (PIL)."""
    lines = unlimited(free_running(summary))
    with style():
        figure, (ax,) = panels(1)
        figure.set_size_inches(7, 1.3 + 0.32 * len(lines))
        _bars(ax, lines, [_ratio(row) for row in lines.to_dict("records")])
        panel_title(ax, "loaders, no limit", f"n = {lines['n'].min()}, median, smallest to largest")
    return figure


def draw_file_per_image(summary: pd.DataFrame) -> Figure:
    """Throttles that charge per request: what one request per image costs, and one per record.

    One panel for each limit on latency or requests; there must be one.
    """
    free = free_running(summary)
    charged = free[(free["latency_ms"] > 0) | free["requests_per_s"].notna()]
    charged = charged[charged["loader"].map(is_ours) | (charged["loader"] == REFERENCE)]
    with style():
        storages = list(dict.fromkeys(charged["storage"]))
        figure, axes = panels(len(storages), max_columns=2)
        for ax, storage in zip(axes, storages, strict=True):
            lines = charged[charged["storage"] == storage]
            requests = [f"; {files:,} requests an epoch" for files in lines["num_files"]]
            _bars(ax, lines, requests)
            ax.set_xscale("log")
            facts = f"n = {lines['n'].min()}, median, smallest to largest"
            panel_title(ax, f"{storage} of latency" if storage.endswith(" ms") else storage, facts)
    return figure


def is_charged(summary: pd.DataFrame) -> bool:
    """Whether there is anything for `draw_file_per_image`."""
    free = free_running(summary)
    return bool(((free["latency_ms"] > 0) | free["requests_per_s"].notna()).any())


def _bars(ax: Axes, lines: pd.DataFrame, notes: list[str]) -> None:
    """Horizontal bars in the order of the lines, first on top."""
    for position, (row, note) in enumerate(zip(lines.to_dict("records"), notes, strict=True)):
        color = scan_color(row["loader"]) if is_ours(row["loader"]) else PEER_COLOR
        ax.barh(position, row["images_per_s_median"], color=color, height=0.66)
        ax.hlines(position, row["images_per_s_min"], row["images_per_s_max"], color="black", linewidth=1)
        ax.annotate(
            f"{row['images_per_s_median']:,.0f}{note}",
            (row["images_per_s_max"], position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )
    several = lines["decode"][lines["loader"].map(is_ours)].nunique() > 1
    names = [
        f"{title_of(loader)}, {decode}" if several and is_ours(loader) else title_of(loader)
        for loader, decode in zip(lines["loader"], lines["decode"], strict=True)
    ]
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.25)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("images/s")


def _ratio(row: dict) -> str:
    ratio = row["ratio_median"]
    return "" if ratio != ratio else f"  {ratio:.2f} x"
