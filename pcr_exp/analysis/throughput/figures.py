"""Bars of loaders and formats, and images per second at each scan group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.cells import kilobytes
from pcr_exp.analysis.core.figure import footer, panel_title, panels, rate_axis
from pcr_exp.analysis.core.look import INK, MUTED, OTHER_LOOKS, ScanLevel, style
from pcr_exp.analysis.throughput.table import REFERENCE, bounds, free_running, unlimited
from pcr_exp.config.scan import is_level, scan_of
from pcr_exp.measuring.peers.registry import is_ours, title_of

PEER_COLOR = "#9aa5b1"
_FORMAT_COLORS = {"pcr": OTHER_LOOKS[0][0], "baseline": INK}
_OTHER_FORMAT = "#9aa5b1"
_BELOW, _ABOVE = 0.6, 1.6
_ROOM_FOR_NOTES, _SHORT_NOTE = 0.85, 12
_BETWEEN_NAMES = 0.06
"""Of the axis' height, between the names of two lines."""


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


def is_per_request(summary: pd.DataFrame) -> pd.Series:
    """Of each line, whether its storage charges per request: latency, or requests per second."""
    return (summary["latency_ms"] > 0) | summary["requests_per_s"].notna()


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


def draw_formats(formats: pd.DataFrame) -> Figure:
    """Two panels of bars, one per format (FORMAT_COLUMNS): kB per image, and CPU ms per image to build.

    Both encodings of records are written in one go, whose time is `pcr`'s.
    """
    with style():
        figure, (space, build) = panels(2)
        names = list(formats["format"])
        per_image = formats["num_bytes"] / formats["num_images"] / 1e3
        cpu_ms = 1e3 * formats["build_cpu_s"] / formats["num_images"]
        _format_bars(space, names, per_image, [kilobytes(1e3 * value) for value in per_image])
        _format_bars(build, names, cpu_ms, ["" if value != value else f"{value:.3g} ms" for value in cpu_ms])
        space.set_xlabel("kB per image")
        build.set_xlabel("CPU ms per image")
        build.set_yticklabels([])
        facts = f"{formats['num_images'].max():,} images"
        panel_title(space, "space of each format", facts)
        panel_title(build, "time to build it", f"{facts}; n = 1")
    return figure


def _format_bars(ax: Axes, names: list[str], values: pd.Series, texts: list[str]) -> None:
    for position, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        ax.barh(
            position,
            0 if value != value else value,
            color=_FORMAT_COLORS.get(name, _OTHER_FORMAT),
            height=0.66,
        )
        ax.annotate(
            text,
            (0 if value != value else value, position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.25)
    ax.grid(axis="y", visible=False)


def draw_throughput_vs_scan(summary: pd.DataFrame) -> Figure:
    """One panel per decoder of ours; `summary` is of `summarise_throughput`.

    Point: median, bar: smallest to largest, coloured by scan level. Thin lines: min(the same loader without a
    limit, bandwidth / bytes per image). Logarithmic: groups and throttles differ by factors.
    """
    ours = summary[summary["loader"].map(is_level)]
    with style():
        decodes = list(dict.fromkeys(ours["decode"]))
        figure, axes = panels(len(decodes), max_columns=2)
        for ax, decode in zip(axes, decodes, strict=True):
            lines = ours[ours["decode"] == decode]
            _draw_panel(ax, lines)
            panel_title(ax, f"decode={decode}", f"n = {lines['n'].min()}, median, smallest to largest")
        if len(bounds(ours)):
            footer(figure, "lines, and dashes at the baseline: min(compute, W / bytes)")
    return figure


def _draw_panel(ax: Axes, lines: pd.DataFrame) -> None:
    levels = sorted(map(level_of_loader, lines["loader"].unique()), key=lambda level: level.place)
    position = {level.label: i for i, level in enumerate(levels)}
    free = unlimited(free_running(lines))
    _draw_points(ax, free, position)
    named = [("no limit", free)]
    bounded = bounds(lines)
    for _, limited in bounded.groupby("storage", sort=False):
        limited = limited.sort_values("loader", key=lambda names: names.map(position))
        _draw_bound(ax, limited, position)
        _draw_points(ax, limited, position)
        named.append((limit_words(limited.iloc[0].to_dict()), limited))
    ax.set_yscale("log")
    # Ticks at 1, 2 and 5 times powers of ten, in limits wide enough to hold one.
    ax.set_ylim(_BELOW * lines["images_per_s_min"].min(), _ABOVE * lines["images_per_s_max"].max())
    rate_axis(ax.yaxis)
    ax.set_xticks(range(len(levels)), [level.words for level in levels])
    ax.set_xlim(-0.4, len(levels) - 0.2)
    ax.set_ylabel("images/s (log scale)")
    ax.grid(axis="x", visible=False)
    _name_lines(ax, named, position)


def _draw_bound(ax: Axes, limited: pd.DataFrame, position: dict[str, int]) -> None:
    """Groups are connected; the baseline, which is none of them, has a dash of its own."""
    look: dict[str, Any] = {"color": MUTED, "linewidth": 1, "zorder": 2}
    is_group = limited["loader"].map(lambda name: level_of_loader(name).encoding == "pcr")
    for rows, marker in ((limited[is_group], ""), (limited[~is_group], "_")):
        at = rows["loader"].map(position)
        ax.plot(at, rows["bound_images_per_s"], marker=marker, markersize=24, **look)


def limit_words(row: Mapping[Any, Any]) -> str:
    """`4.77 MiB/s`; of what limits something else, as the measurement calls it."""
    bandwidth = row["bandwidth_mib_per_s"]
    return str(row["storage"]) if bandwidth != bandwidth else f"{bandwidth:.3g} MiB/s"


def _draw_points(ax: Axes, lines: pd.DataFrame, position: dict[str, int]) -> None:
    for row in lines.to_dict("records"):
        x, level = position[row["loader"]], level_of_loader(row["loader"])
        color = level.color
        ax.vlines(x, row["images_per_s_min"], row["images_per_s_max"], color=color, linewidth=2.2, zorder=3)
        ax.plot(
            *(x, row["images_per_s_median"], level.marker),
            color=color,
            markersize=6,
            markeredgecolor="white",
            zorder=4,
        )


def level_of_loader(name: str) -> ScanLevel:
    """The scan level that one of our loaders is measured at, as the catalogue of loaders has it."""
    scan = scan_of(name)
    return ScanLevel(name, scan.encoding, scan.group)


def _name_lines(ax: Axes, named: list[tuple[str, pd.DataFrame]], position: dict[str, int]) -> None:
    """In the right margin, beside each line's last point, or below the name of the line above it."""
    low, high = (math.log(limit) for limit in ax.get_ylim())
    ends = []
    for name, rows in named:
        last = max(rows.to_dict("records"), key=lambda row: position[row["loader"]])
        ends.append(((math.log(last["images_per_s_median"]) - low) / (high - low), name))
    free_below = math.inf
    for height, name in sorted(ends, reverse=True):
        at = min(height, free_below)
        free_below = at - _BETWEEN_NAMES
        ax.annotate(
            name,
            (1, at),
            xycoords="axes fraction",
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
