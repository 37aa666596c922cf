"""The page of our own scan levels: how fast each is under each storage, as a table and a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.caption import NOT_TIMED, Caption, hardware_words
from pcr_exp.analysis.core.cells import markdown_table, median_cell, span, three_figures
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.analysis.throughput.figures import draw_throughput_vs_scan, is_per_request, limit_words
from pcr_exp.analysis.throughput.table import UNLIMITED, Throughput, load_throughput, summarise_throughput
from pcr_exp.system.provenance import code_in_words

PAGE_FILE = "throughput.md"
SUMMARY_FILE = "throughput_summary.csv"
_Columns = dict[str, Callable[[Mapping[Any, Any]], str]]


def report_levels(folder: str | Path) -> list[Path]:
    """Write throughput_summary.csv, throughput.md and the figure `throughput_vs_scan`; returns all files.

    Raises:
        RunError: the measurement in `folder` is missing or damaged.
    """
    folder = Path(folder)
    measured = load_throughput(folder)
    summary = summarise_throughput(measured.rows)
    tables = [folder / SUMMARY_FILE, folder / PAGE_FILE]
    summary.to_csv(tables[0], index=False)
    tables[1].write_text(levels_to_markdown(measured, summary))
    caption = caption_of(measured, "Images/s at each scan level", summary[~is_per_request(summary)])
    figure = draw_throughput_vs_scan(summary)
    return [*tables, *save_figure(figure, summary, folder, "throughput_vs_scan", caption)]


def levels_to_markdown(measured: Throughput, summary: pd.DataFrame) -> str:
    """What was measured, a line per level and storage, and what was left out, with the reason."""
    absent = "\n".join(f"* {name}: absent, {reason}" for name, reason in sorted(measured.absent.items()))
    counted = f"Counted: {measured.meta['settings']['counted']}."
    parts = [facts(measured), counted, markdown_table(summary, _LEVELS), absent]
    return "\n\n".join(part for part in parts if part) + "\n"


def caption_of(measured: Throughput, shows: str, lines: pd.DataFrame | None) -> Caption:
    """Of the lines that are drawn; None: of formats, which are built once."""
    settings = measured.meta["settings"]
    cases = [] if lines is None else lines.drop_duplicates("storage").to_dict("records")
    limits = ["no limit in MiB/s" if row["storage"] == UNLIMITED else limit_words(row) for row in cases]
    size = "whole files" if lines is None else f"{settings['image_size']} px crops"
    return Caption(
        shows=shows,
        of=(f"{settings['dataset']}, {settings['num_images']:,} images · {size}",),
        n="n = 1" if lines is None else f"n = {span(lines['n'])} repeats",
        hardware=hardware_words(measured.meta),
        storage=f"storage: {' / '.join(limits)}" if limits else NOT_TIMED,
    )


def facts(measured: Throughput) -> str:
    """What was measured on what, when and by which command."""
    meta, rows = measured.meta, measured.rows
    settings = meta["settings"]
    code = code_in_words([meta["git_sha"]], meta["git_dirty"], meta["packages"])
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
