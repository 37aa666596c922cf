"""Bars of loaders."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.loaders.peers.catalogue import is_ours, title_of
from pcr_exp.analysis.figure import panel_title, panels
from pcr_exp.analysis.style import MUTED, style
from pcr_exp.analysis.throughput import REFERENCE, free_running, unlimited
from pcr_exp.analysis.throughput_page import is_per_request, level_of_loader

PEER_COLOR = "#9aa5b1"

_ROOM_FOR_NOTES, _SHORT_NOTE = 0.85, 12


def draw_loaders(summary: pd.DataFrame) -> Figure:
    """All loaders without a limit, as fast as they go, and their ratio to ImageFolder (PIL)."""
    lines = unlimited(free_running(summary))
    with style():
        figure, (ax,) = panels(1)
        figure.set_size_inches(7, 1.3 + 0.32 * len(lines))
        _loader_bars(ax, lines, [_ratio(row) for row in lines.to_dict("records")])
        panel_title(ax, "loaders, no limit", f"n = {lines['n'].min()}, median, smallest to largest")
    return figure


def draw_file_per_image(summary: pd.DataFrame) -> Figure:
    """Throttles that charge per request: what one request per image costs, and one per record.

    One panel for each limit on latency or requests; there must be one.
    """
    charged = charged_per_request(summary)
    with style():
        storages = list(dict.fromkeys(charged["storage"]))
        figure, axes = panels(len(storages), max_columns=2)
        for ax, storage in zip(axes, storages, strict=True):
            lines = charged[charged["storage"] == storage]
            requests = [f"; {files:,} requests an epoch" for files in lines["num_files"]]
            _loader_bars(ax, lines, requests)
            facts = f"n = {lines['n'].min()}, median, smallest to largest"
            panel_title(ax, f"{storage} of latency" if storage.endswith(" ms") else storage, facts)
    return figure


def charged_per_request(summary: pd.DataFrame) -> pd.DataFrame:
    """The lines for `draw_file_per_image`: our loaders and the reference, where requests are charged for."""
    free = free_running(summary)
    charged = free[is_per_request(free)]
    return charged[charged["loader"].map(is_ours) | (charged["loader"] == REFERENCE)]


def is_charged(summary: pd.DataFrame) -> bool:
    """Whether there is anything for `draw_file_per_image`."""
    return bool(is_per_request(free_running(summary)).any())


def _loader_bars(ax: Axes, lines: pd.DataFrame, notes: list[str]) -> None:
    """Horizontal bars in the order of the lines, first on top."""
    for position, (row, note) in enumerate(zip(lines.to_dict("records"), notes, strict=True)):
        color = level_of_loader(row["loader"]).color if is_ours(row["loader"]) else PEER_COLOR
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
    ax.margins(x=_ROOM_FOR_NOTES if any(len(note) > _SHORT_NOTE for note in notes) else 0.25)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("images/s")


def _ratio(row: dict) -> str:
    ratio = row["ratio_median"]
    return "" if ratio != ratio else f"  {ratio:.2f} x"
