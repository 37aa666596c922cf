"""Throughput measurements: files on disk, one summary line per loader, the page and the figure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.caption import Caption, describe_hardware
from pcr_exp.analysis.figure import draw_panels, note, rate_axis, save_figure
from pcr_exp.analysis.style import INK, MUTED, level_called
from pcr_exp.analysis.tables import markdown_table, median_cell, reading, require_columns, span, three_figures
from pcr_exp.config.scan import is_level
from pcr_exp.system import MIB
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.provenance import describe_code, write_measured

CASE = ["loader", "decode", "storage", "model_images_per_s", "cores"]
"""Columns that repeats of a measurement share."""

LIMITS = ["bandwidth_mib_per_s", "latency_ms", "requests_per_s"]

MEASURES = ["images_per_s", "mib_per_s", "cpu_s_per_image", "wait_share", "first_batch_s"]

BOUND = ["bound_images_per_s", "bound_cpu_s_per_image"]
"""Rates of decoding and cropping alone, before and after one of our loaders; empty if not measured."""

ROW_COLUMNS = [
    *("repeat", *CASE, *LIMITS),
    *("num_epochs", "num_images", "total_s", *MEASURES),
    *("epoch_bytes", "num_files", "cached_share"),
    *BOUND,
]
"""Columns of the rows, one row per measurement.

`images_per_s` counts whole epochs in the middle of a stream, without the loader's start (`first_batch_s`) and
end; older measurements without BOUND count from opening the loader. `cores` is the number of cores that the
loader was confined to, empty for all. `wait_share` is the share of time in which the consumer had no batch.
`epoch_bytes` is what one epoch reads. `cached_share` is the share of the files that was in the page cache
before, empty if the kernel did not report it."""

FORMAT_COLUMNS = ["format", "num_images", "num_files", "num_bytes", "build_s", "build_cpu_s"]

REFERENCE = "image_folder_pil"
"""The loader that ratios refer to: what most people use."""

UNLIMITED = "unlimited"
ROWS_FILE = "throughput.csv"
FORMATS_FILE = "formats.csv"
META_FILE = "throughput.json"
REMEDY = "Measure it again with `python -m experiments.throughput`."


def summarise_throughput(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per CASE, in order of first measurement: n, and median, min and max of MEASURES.

    `ratio_*` are images/s over REFERENCE's in the same repeat, for lines that are free-running, unlimited and
    on all cores; NaN for others, and without that loader. `bound_share_*` are images/s over those of decoding
    and cropping alone in the same repeat. `cores_ratio_*` are images/s on all cores over those on this number
    of cores. `image_bytes` are an epoch's bytes per image.
    """
    rows = rows.assign(
        ratio=_ratios(rows),
        bound_share=rows["images_per_s"] / rows["bound_images_per_s"].astype(float),
        cores_ratio=_cores_ratios(rows),
        image_bytes=rows["epoch_bytes"] * rows["num_epochs"] / rows["num_images"],
    )
    by_case = rows.groupby(CASE, sort=False, dropna=False)
    columns: dict[str, pd.Series] = {"n": by_case.size()}
    for name in [*LIMITS, "epoch_bytes", "image_bytes", "num_files"]:
        columns[name] = by_case[name].first()
    for measure in [*MEASURES, *BOUND, "ratio", "bound_share", "cores_ratio"]:
        for statistic in ("median", "min", "max"):
            columns[f"{measure}_{statistic}"] = by_case[measure].agg(statistic)
    columns["cached_share_min"] = by_case["cached_share"].min()
    return pd.DataFrame(columns).reset_index()


def free_running(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of loaders whose batches were taken as fast as they came."""
    return summary[summary["model_images_per_s"].isna()]


def unlimited(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the lines without a throttle."""
    return summary[summary["storage"] == UNLIMITED]


def bounds(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the free-running lines with a bandwidth limit, and their upper bound `bound_images_per_s`.

    It is min(images/s of the same loader without a limit, bandwidth / bytes per image): the model of the PCR
    paper, with decoding measured rather than modelled.
    """
    free = free_running(summary)
    compute = unlimited(free).set_index(["loader", "decode"])["images_per_s_median"]
    limited = free[free["bandwidth_mib_per_s"].notna()]
    rates = limited["bandwidth_mib_per_s"] * MIB / limited["image_bytes"]
    own = compute.reindex(pd.MultiIndex.from_frame(limited[["loader", "decode"]])).to_numpy()
    return limited.assign(bound_images_per_s=rates.clip(upper=pd.Series(own, index=limited.index)))


def _ratios(rows: pd.DataFrame) -> pd.Series:
    comparable = (rows["storage"] == UNLIMITED) & rows["model_images_per_s"].isna() & rows["cores"].isna()
    reference = rows[comparable & (rows["loader"] == REFERENCE)].set_index("repeat")["images_per_s"]
    return (rows["images_per_s"] / rows["repeat"].map(reference.to_dict())).where(comparable)


def _cores_ratios(rows: pd.DataFrame) -> pd.Series:
    """Return, for lines confined to some cores, images/s of the same case on all cores over theirs."""
    names = ["repeat", *(name for name in CASE if name != "cores")]
    cases = [
        tuple(None if pd.isna(value) else value for value in case)
        for case in rows[names].itertuples(index=False, name=None)
    ]
    alike = pd.Series(cases, index=rows.index)
    whole = rows["cores"].isna()
    on_all = dict(zip(alike[whole], rows.loc[whole, "images_per_s"], strict=True))
    ratios = [
        on_all.get(case, math.nan) / rate for case, rate in zip(cases, rows["images_per_s"], strict=True)
    ]
    return pd.Series(ratios, index=rows.index).where(~whole)


@dataclass(frozen=True, slots=True)
class Throughput:
    """A measurement of loaders, as read from its folder."""

    rows: pd.DataFrame
    """ROW_COLUMNS."""
    formats: pd.DataFrame
    """FORMAT_COLUMNS."""
    absent: dict[str, str]
    """Loaders that were requested but not measured, with the reason."""
    meta: dict[str, Any]


def write_throughput(
    folder: str | Path,
    rows: pd.DataFrame,
    formats: pd.DataFrame,
    absent: Mapping[str, str],
    settings: Mapping[str, Any],
) -> None:
    """Write throughput.csv, formats.csv and, last, throughput.json: a folder that has it is complete."""
    folder = Path(folder)
    make_folder(folder)
    write_atomic(folder / ROWS_FILE, [rows[ROW_COLUMNS].to_csv(index=False).encode()])
    write_atomic(folder / FORMATS_FILE, [formats[FORMAT_COLUMNS].to_csv(index=False).encode()])
    write_measured(folder / META_FILE, {"absent": dict(absent), "settings": dict(settings)})


def load_throughput(folder: str | Path) -> Throughput:
    """Read a folder written by `write_throughput`.

    Raises:
        RunError: it is missing, damaged or of another version.
    """
    folder = Path(folder)
    with reading(folder, REMEDY):
        meta = json.loads((folder / META_FILE).read_text())
        rows = pd.read_csv(folder / ROWS_FILE)
        formats = pd.read_csv(folder / FORMATS_FILE)
        absent = meta["absent"]
    require_columns(folder / ROWS_FILE, rows, ROW_COLUMNS, REMEDY)
    require_columns(folder / FORMATS_FILE, formats, FORMAT_COLUMNS, REMEDY)
    return Throughput(rows, formats, absent, meta)


_BELOW, _ABOVE = 0.6, 1.6

_BETWEEN_NAMES = 0.06
"""Least distance between the names of two lines, as a share of the axis' height."""


def is_per_request(summary: pd.DataFrame) -> pd.Series:
    """Return whether each line's storage is limited per request: by latency or requests per second."""
    return (summary["latency_ms"] > 0) | summary["requests_per_s"].notna()


def draw_throughput_vs_scan(summary: pd.DataFrame) -> Figure:
    """Draw one panel per decoder of our loader; `summary` is the result of `summarise_throughput`.

    Points are medians and bars run from smallest to largest, coloured by scan level. Thin lines are min(the
    same loader without a limit, bandwidth / bytes per image). The axis is logarithmic: groups and throttles
    differ by factors.
    """
    ours = summary[summary["loader"].map(is_level)]
    found = [
        (f"decode={decode}", f"n = {lines['n'].min()}, median, smallest to largest", lines)
        for decode, lines in ours.groupby("decode", sort=False)
    ]
    words = "lines, and dashes at the baseline: min(compute, W / bytes)" if len(bounds(ours)) else ""
    return draw_panels(found, _draw_panel, max_columns=2, words=words)


def _draw_panel(ax: Axes, lines: pd.DataFrame) -> None:
    levels = sorted(map(level_called, lines["loader"].unique()), key=lambda level: level.place)
    position = {level.label: i for i, level in enumerate(levels)}
    free = unlimited(free_running(lines))
    _draw_points(ax, free, position)
    named = [("no limit", free)]
    bounded = bounds(lines)
    for _, limited in bounded.groupby("storage", sort=False):
        limited = limited.sort_values("loader", key=lambda names: names.map(position))
        _draw_bound(ax, limited, position)
        _draw_points(ax, limited, position)
        named.append((describe_limit(limited.iloc[0].to_dict()), limited))
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
    """Draw the bound, connected over groups; the baseline is not a group and has its own dash."""
    look: dict[str, Any] = {"color": MUTED, "linewidth": 1, "zorder": 2}
    is_group = limited["loader"].map(lambda name: level_called(name).encoding == "pcr")
    for rows, marker in ((limited[is_group], ""), (limited[~is_group], "_")):
        at = rows["loader"].map(position)
        ax.plot(at, rows["bound_images_per_s"], marker=marker, markersize=24, **look)


def describe_limit(row: Mapping[Any, Any]) -> str:
    """Label of a storage limit: `4.77 MiB/s`, or the measurement's own name for another kind of limit."""
    bandwidth = row["bandwidth_mib_per_s"]
    return str(row["storage"]) if bandwidth != bandwidth else f"{bandwidth:.3g} MiB/s"


def _draw_points(ax: Axes, lines: pd.DataFrame, position: dict[str, int]) -> None:
    for row in lines.to_dict("records"):
        x, level = position[row["loader"]], level_called(row["loader"])
        ends = (row["images_per_s_min"], row["images_per_s_max"])
        ax.vlines(x, *ends, color=level.color, linewidth=2.2, zorder=3)
        look: dict[str, Any] = {"markersize": 6, "markeredgecolor": "white", "zorder": 4}
        ax.plot(x, row["images_per_s_median"], level.marker, color=level.color, **look)


def _name_lines(ax: Axes, named: list[tuple[str, pd.DataFrame]], position: dict[str, int]) -> None:
    """Name each line in the right margin, beside its last point or below the name of the line above it."""
    low, high = (math.log(limit) for limit in ax.get_ylim())
    ends = []
    for name, rows in named:
        last = max(rows.to_dict("records"), key=lambda row: position[row["loader"]])
        ends.append(((math.log(last["images_per_s_median"]) - low) / (high - low), name))
    free_below = math.inf
    for height, name in sorted(ends, reverse=True):
        at = min(height, free_below)
        free_below = at - _BETWEEN_NAMES
        note(ax, name, (1, at), (3, 0), "axes fraction", va="center", fontsize=8, color=INK)


PAGE_FILE = "throughput.md"

SUMMARY_FILE = "throughput_summary.csv"

_Columns = dict[str, Callable[[Mapping[Any, Any]], str]]


def report_levels(folder: str | Path) -> list[Path]:
    """Write throughput_summary.csv, throughput.md and the figure `throughput_vs_scan`; return all files.

    Raises:
        RunError: the measurement in `folder` is missing or damaged.
    """
    measured, summary, tables = write_tables(Path(folder), levels_to_markdown)
    return [*tables, *save_levels(measured, summary, Path(folder))]


def write_tables(
    folder: Path, page: Callable[[Throughput, pd.DataFrame], str]
) -> tuple[Throughput, pd.DataFrame, list[Path]]:
    """Write SUMMARY_FILE and PAGE_FILE (by `page`); return the measurement, its summary and both files.

    Raises:
        RunError: the measurement in `folder` is missing or damaged.
    """
    measured = load_throughput(folder)
    summary = summarise_throughput(measured.rows)
    tables = [folder / SUMMARY_FILE, folder / PAGE_FILE]
    summary.to_csv(tables[0], index=False)
    tables[1].write_text(page(measured, summary))
    return measured, summary, tables


def save_levels(measured: Throughput, summary: pd.DataFrame, folder: Path) -> list[Path]:
    """Save the figure `throughput_vs_scan`."""
    caption = caption_of(measured, "Images/s at each scan level", summary[~is_per_request(summary)])
    return save_figure(draw_throughput_vs_scan, summary, folder, "throughput_vs_scan", caption)


def levels_to_markdown(measured: Throughput, summary: pd.DataFrame) -> str:
    """Return the page: facts, a line per level and storage, and the absent loaders with the reason."""
    absent = "\n".join(f"* {name}: absent, {reason}" for name, reason in sorted(measured.absent.items()))
    counted = f"Counted: {measured.meta['settings']['counted']}."
    parts = [facts(measured), counted, markdown_table(summary, _LEVELS), absent]
    return "\n\n".join(part for part in parts if part) + "\n"


def caption_of(measured: Throughput, shows: str, lines: pd.DataFrame) -> Caption:
    """Return the caption of a figure of these lines."""
    settings = measured.meta["settings"]
    cases = lines.drop_duplicates("storage").to_dict("records")
    limits = ["no limit in MiB/s" if row["storage"] == UNLIMITED else describe_limit(row) for row in cases]
    return Caption(
        shows=shows,
        of=(f"{settings['dataset']}, {settings['num_images']:,} images · {settings['image_size']} px crops",),
        n=f"n = {span(lines['n'])} repeats",
        hardware=describe_hardware(measured.meta),
        storage=f"storage: {' / '.join(limits)}",
    )


def facts(measured: Throughput) -> str:
    """Describe the subject, machine, code, time and command of a measurement."""
    meta, rows = measured.meta, measured.rows
    settings = meta["settings"]
    code = describe_code([meta["git_sha"]], meta["git_dirty"], meta["packages"])
    return (
        f"{settings['dataset']}, {settings['num_images']} images; shuffled epochs, decode, random-resized-"
        f"crop {settings['image_size']}, batches of {settings['batch_size']}, {settings['num_workers']} "
        f"workers; {meta['cpu']}, {meta['num_cores']} cores; n = {rows['repeat'].nunique()} interleaved "
        f"repeats, median (smallest to largest); {_cached(rows['cached_share'])}; "
        f"{code}, {meta['measured_at']}.\n\n    {meta['command']}"
    )


def _cached(shares: pd.Series) -> str:
    if shares.isna().any():
        return "how much lay in the page cache is not known: the kernel tells it to the files' owner only"
    low, high = 100 * shares.min(), 100 * shares.max()
    return f"{low:.0f} to {high:.0f} % of the files' bytes in the page cache before a measurement"


MEASURED: _Columns = {
    "decoder": lambda row: row["decode"],
    "images/s": median_cell("images_per_s", three_figures),
    "MiB/s": lambda row: three_figures(row["mib_per_s_median"]),
    "first batch (s)": median_cell("first_batch_s", three_figures),
}

_LEVELS: _Columns = {
    "storage": lambda row: row["storage"],
    "scan level": lambda row: row["loader"].replace("_", " "),
    **MEASURED,
}
