"""The summary table for people: as Markdown, and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from pcr_exp.analysis.figures.style import kilobytes, scan_label
from pcr_exp.analysis.markdown import NOTHING, three_figures
from pcr_exp.analysis.summary import GROUP_KEYS

HEADER = [
    "scan",
    "n",
    "bytes per image",
    "MS-SSIM",
    "images/s",
    "MiB/s",
    "wait share",
    "best top-1",
    "seconds to target",
    "speed-up over baseline",
]


def to_markdown(summary: pd.DataFrame, unfinished: pd.DataFrame | None = None) -> str:
    """One Markdown table per dataset x label x model x storage; runs without a result are listed below."""
    parts = []
    for title, facts, lines in _tables(summary):
        header = "| " + " | ".join(HEADER) + " |\n|" + " --- |" + " ---: |" * (len(HEADER) - 1)
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"### {title}\n\n{facts}\n\n{header}\n{body}\n")
    if not parts:
        parts.append("No finished runs.\n")
    if unfinished is not None and len(unfinished):
        listed = "\n".join(f"* `{row['run_id']}`: {row['status']}" for row in unfinished.to_dict("records"))
        parts.append(f"Not in the tables, because they did not finish:\n\n{listed}\n")
    return "\n".join(parts)


def to_rich(summary: pd.DataFrame) -> list[Table]:
    """The same tables for `rich.print`."""
    tables = []
    for title, facts, lines in _tables(summary):
        # One line per level, also in a terminal of 80 columns.
        table = Table(title=title, caption=facts, box=SIMPLE_HEAD, padding=0, pad_edge=False)
        table.title_justify = table.caption_justify = "left"
        for i, name in enumerate(HEADER):
            table.add_column(_broken(name), justify="left" if i == 0 else "right")
        for line in lines:
            table.add_row(*line)
        tables.append(table)
    return tables


def _broken(name: str) -> str:
    """A column's name on as many lines as it has words."""
    return name.replace(" ", "\n")


def _tables(summary: pd.DataFrame) -> Iterator[tuple[str, str, list[list[str]]]]:
    """(title, facts, cells) of every group of comparable runs."""
    if summary.empty:
        return
    for (dataset, label, model, storage, setting), rows in summary.groupby(GROUP_KEYS, sort=True):
        hardware = " / ".join(sorted(set(rows["hardware"])))
        target = _percent(rows["target_top1"].iloc[0])
        facts = (
            f"Storage {storage}; target {target} validation top-1; mean over n seeds (smallest to largest); "
            f"time is training + data wait; setting {setting}; {hardware}."
        )
        has_baseline = bool((rows["encoding"] == "baseline").any())
        lines = [_cells(row, has_baseline) for row in rows.to_dict("records")]
        yield f"{dataset} · {label} · {model}", facts, lines


def _cells(row: Mapping[Any, Any], has_baseline: bool) -> list[str]:
    return [
        scan_label(row["scan"]),
        str(row["n"]),
        kilobytes(row["mean_image_bytes"]),
        _number(row["ms_ssim"], lambda value: f"{value:.3f}"),
        _spread(row, "images_per_s", three_figures),
        _spread(row, "storage_mib_per_s", three_figures),
        _spread(row, "wait_share", _percent),
        _spread(row, "best_top1", _percent),
        _seconds(row),
        _speedup(row, has_baseline),
    ]


def _seconds(row: Mapping[Any, Any]) -> str:
    if row["num_reached"] == row["n"]:
        return _spread(row, "time_to_target_s", three_figures)
    return "not reached" if row["num_reached"] == 0 else f"reached by {row['num_reached']} of {row['n']}"


def _speedup(row: Mapping[Any, Any], has_baseline: bool) -> str:
    if not has_baseline:
        return "no baseline"
    if row["num_reached"] < row["n"]:
        return NOTHING
    return _number(row["speedup_over_baseline"], lambda value: f"{value:.2f} x", "baseline: not reached")


def _spread(row: Mapping[Any, Any], measure: str, show: Callable[[float], str]) -> str:
    mean, low, high = (row[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    if row["n"] == 1 or show(low) == show(high):
        return _number(mean, show)
    return f"{show(mean)} ({show(low)} to {show(high)})"


def _number(value: float, show: Callable[[float], str], nothing: str = NOTHING) -> str:
    return nothing if math.isnan(value) else show(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
