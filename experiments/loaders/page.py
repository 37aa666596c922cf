"""The page of a contest of loaders: tables in Markdown, and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.loaders.peers.catalogue import differs_of, filter_of, is_ours, title_of
from pcr_exp.analysis.figure import note, panel_title, panels, save_figure
from pcr_exp.analysis.style import MUTED, level_called, style
from pcr_exp.analysis.tables import Cell, kilobytes, markdown_table, median_cell, number, three_figures
from pcr_exp.analysis.throughput import (
    MEASURED,
    REFERENCE,
    Throughput,
    caption_of,
    facts,
    free_running,
    is_per_request,
    save_levels,
    unlimited,
    write_tables,
)

PEER_COLOR = "#9aa5b1"

_ROOM_FOR_NOTES, _SHORT_NOTE = 0.85, 12


def draw_loaders(summary: pd.DataFrame) -> Figure:
    """Draw free-running images/s of all loaders without limits, and their ratios to ImageFolder (PIL)."""
    lines = unlimited(free_running(summary))
    with style():
        figure, (ax,) = panels(1)
        figure.set_size_inches(7, 1.3 + 0.32 * len(lines))
        _loader_bars(ax, lines, [_ratio(row) for row in lines.to_dict("records")])
        panel_title(ax, "loaders, no limit", f"n = {lines['n'].min()}, median, smallest to largest")
    return figure


def draw_file_per_image(summary: pd.DataFrame) -> Figure:
    """Draw loaders under limits per request: one request per image against one per record.

    One panel for each limit on latency or requests/s; there must be at least one.
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
    """Return the lines for `draw_file_per_image`: our loaders and the reference under limits per request."""
    free = free_running(summary)
    is_shown = free["loader"].map(is_ours) | (free["loader"] == REFERENCE)
    return free[is_per_request(free) & is_shown]


def _loader_bars(ax: Axes, lines: pd.DataFrame, notes: list[str]) -> None:
    """Draw horizontal bars in the order of the lines, first on top."""
    for position, (row, beside) in enumerate(zip(lines.to_dict("records"), notes, strict=True)):
        color = level_called(row["loader"]).color if is_ours(row["loader"]) else PEER_COLOR
        ax.barh(position, row["images_per_s_median"], color=color, height=0.66)
        ax.hlines(position, row["images_per_s_min"], row["images_per_s_max"], color="black", linewidth=1)
        words, end = f"{row['images_per_s_median']:,.0f}{beside}", (row["images_per_s_max"], position)
        note(ax, words, end, (4, 0), va="center", fontsize=8, color=MUTED)
    several = lines["decode"][lines["loader"].map(is_ours)].nunique() > 1
    names = [
        f"{title_of(loader)}, {decode}" if several and is_ours(loader) else title_of(loader)
        for loader, decode in zip(lines["loader"], lines["decode"], strict=True)
    ]
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=_ROOM_FOR_NOTES if any(len(beside) > _SHORT_NOTE for beside in notes) else 0.25)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("images/s")


def _ratio(row: dict) -> str:
    ratio = row["ratio_median"]
    return "" if ratio != ratio else f"  {ratio:.2f} x"


OURS = "baseline"
"""The level of ours to compare peers with: records that store the original files unchanged."""

_BESIDE: dict[str, Cell] = {
    "baseline records, beside": lambda row: title_of(row["loader"]),
    "who filters": lambda row: "both" if row["filtered"] else "neither",
    "images/s, ours / theirs": median_cell("images_per_s", "{:.2f}".format),
    "CPU per image, theirs / ours": median_cell("cpu", "{:.2f}".format),
    "what differs": lambda row: differs_of(row["loader"]),
}


def on_all_cores(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of loaders that were not confined to some cores."""
    return summary[summary["cores"].isna()]


def beside_to_markdown(rows: pd.DataFrame) -> str:
    """Return a table with a line per peer; empty without rows of baseline records or without peers.

    Peers that filter are compared with ours with the resize filter, others with ours without it.

    Args:
        rows: Columns `ROW_COLUMNS`, one row per measurement.
    """
    free = on_all_cores(unlimited(free_running(rows)))
    filters = [filter_of(*names) for names in zip(free["loader"], free["decode"], strict=True)]
    free = free.assign(filtered=[name != "none" for name in filters])
    ours = free[free["loader"] == OURS].drop_duplicates(["repeat", "filtered"])
    theirs = free[~free["loader"].map(is_ours)]
    pairs = theirs.merge(ours, on=["repeat", "filtered"], suffixes=("", "_ours"))
    if pairs.empty:
        return ""
    pairs = pairs.assign(
        images_per_s=pairs["images_per_s_ours"] / pairs["images_per_s"],
        cpu=pairs["cpu_s_per_image"] / pairs["cpu_s_per_image_ours"],
    )
    by_loader = pairs.groupby("loader", sort=False)
    lines = by_loader[["images_per_s", "cpu"]].agg(["median", "min", "max"])
    lines.columns = ["_".join(column) for column in lines.columns]
    lines = lines.assign(n=by_loader.size(), filtered=by_loader["filtered"].first())
    return markdown_table(lines.reset_index(), _BESIDE)


def report_throughput(folder: str | Path) -> list[Path]:
    """Write throughput_summary.csv, throughput.md and all figures with data; return the paths.

    Raises:
        RunError: the measurement in `folder` is missing or damaged.
    """
    folder = Path(folder)
    measured, summary, tables = write_tables(folder, to_markdown)
    summary = on_all_cores(summary)
    free = unlimited(free_running(summary))
    caption = caption_of(measured, "Loaders", free)
    figures = save_figure(lambda _: draw_loaders(free), summary, folder, "loaders", caption)
    if summary["loader"].map(is_ours).any():
        figures += save_levels(measured, summary, folder)
    charged = charged_per_request(summary)
    if len(charged):
        caption = caption_of(measured, "What requests cost", charged)
        figures += save_figure(
            lambda _: draw_file_per_image(charged), summary, folder, "file_per_image", caption
        )
    return [*tables, *figures]


def to_markdown(measured: Throughput, summary: pd.DataFrame) -> str:
    """Return the tables of loaders without limits, under throttles, and of formats; list absent loaders."""
    bounds, summary = _bounds(summary), on_all_cores(summary)
    loaders = _loaders(summary, measured.meta["settings"])
    beside = beside_to_markdown(measured.rows)
    parts = [facts(measured), loaders, _absent(measured.absent), beside, bounds]
    limited = free_running(summary[summary["storage"] != "unlimited"])
    if len(limited):
        parts.append("### Under throttles\n\n" + markdown_table(limited, LIMITED))
        parts.append(_never_limited(summary, limited))
    parts.append("### Formats\n\n" + markdown_table(measured.formats, _FORMATS))
    return "\n\n".join(part for part in parts if part) + "\n"


def _loaders(summary: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """Return the table of free-running loaders, with the wait share of each at the model's speed."""
    lines = unlimited(summary)
    paced = lines[lines["model_images_per_s"].notna()]
    shares = paced.set_index(["loader", "decode"])["wait_share_median"].to_dict()
    free = free_running(lines)
    keys = zip(free["loader"], free["decode"], strict=True)
    free = free.assign(paced_wait_share=[shares.get(key, math.nan) for key in keys])
    columns = dict(_LOADERS)
    if len(paced):
        model = paced["model_images_per_s"].iloc[0]
        words = f"wait share at {model:,.0f} images/s"
        columns[words] = lambda row: number(row["paced_wait_share"], "{:.0%}".format)
    counted = settings.get("counted", _COUNTED_BEFORE)
    return f"### Loaders\n\nCounted: {counted}.\n\n{markdown_table(free, columns)}"


def _bounds(summary: pd.DataFrame) -> str:
    """Return the table of ours against decoding and cropping alone, also on fewer cores."""
    lines = summary[summary["bound_images_per_s_median"].notna()]
    if not len(lines):
        return ""
    return f"### Beside decoding and cropping alone\n\n{_WHAT_BOUNDS}\n\n{markdown_table(lines, _BOUNDS)}"


def _never_limited(summary: pd.DataFrame, limited: pd.DataFrame) -> str:
    """List the loaders without a line under throttles, with the reason; empty if there are none."""
    missing = [name for name in summary["loader"].unique() if name not in set(limited["loader"])]
    titles = "; ".join(title_of(name) for name in missing)
    because = "they open their files past the storage layer that holds the throttle"
    return f"Measured without a throttle only, as {because}: {titles}." if missing else ""


def _absent(absent: Mapping[str, str]) -> str:
    return "\n".join(f"* {title_of(name)}: absent, {reason}" for name, reason in sorted(absent.items()))


def _per_image(column: str) -> Cell:
    return lambda row: three_figures(1e3 * row[column] / row["num_images"])


_LOADERS: dict[str, Cell] = {
    "loader": lambda row: title_of(row["loader"]),
    "decoder": lambda row: row["decode"],
    "resize filter": lambda row: filter_of(row["loader"], row["decode"]),
    "images/s": median_cell("images_per_s", three_figures),
    "x ImageFolder (PIL)": median_cell("ratio", "{:.2f}".format),
    "MiB/s": lambda row: three_figures(row["mib_per_s_median"]),
    "CPU ms per image": lambda row: three_figures(1e3 * row["cpu_s_per_image_median"]),
    "bytes per epoch": lambda row: kilobytes(row["epoch_bytes"]),
    "first batch (s)": median_cell("first_batch_s", three_figures),
    "what differs": lambda row: differs_of(row["loader"]),
}

_COUNTED_BEFORE = "all from opening the loader to its last batch"
"""For older measurements, which do not record it."""

_WHAT_BOUNDS = (
    "The bound is what the workers' own code gives on files in memory, in as many processes, with nothing "
    "read or handed over: measured before and after each measurement of the loader; shares are taken by "
    "repeat."
)

_BOUNDS: dict[str, Cell] = {
    "loader": lambda row: title_of(row["loader"]),
    "decoder": lambda row: row["decode"],
    "cores": lambda row: number(row["cores"], "{:.0f}".format),
    "images/s": median_cell("images_per_s", three_figures),
    "bound, images/s": median_cell("bound_images_per_s", three_figures),
    "share of the bound": median_cell("bound_share", "{:.3f}".format),
    "CPU us per image": lambda row: three_figures(1e6 * row["cpu_s_per_image_median"]),
    "bound, CPU us per image": lambda row: three_figures(1e6 * row["bound_cpu_s_per_image_median"]),
    "all cores over this": median_cell("cores_ratio", "{:.2f}".format),
}

_FORMATS: dict[str, Cell] = {
    "format": lambda row: row["format"],
    "files": lambda row: f"{row['num_files']:,}",
    "size": lambda row: kilobytes(row["num_bytes"]),
    "kB per image": lambda row: three_figures(row["num_bytes"] / 1e3 / row["num_images"]),
    "build, ms per image": _per_image("build_s"),
    "build, CPU ms per image": _per_image("build_cpu_s"),
}

LIMITED: dict[str, Cell] = {
    "storage": lambda row: row["storage"],
    "loader": lambda row: title_of(row["loader"]),
    **MEASURED,
}
