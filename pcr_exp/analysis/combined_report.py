"""The combined experiment for people: its table and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.combined_table import PANEL_KEYS, combined_frame, combined_summary
from pcr_exp.analysis.figures.combined import draw_combined
from pcr_exp.analysis.figures.save import save_figure
from pcr_exp.analysis.figures.style import kilobytes
from pcr_exp.analysis.markdown import NOTHING, markdown_table, three_figures
from pcr_exp.analysis.read_runs import Run

Cell = Callable[[Mapping[Any, Any]], str]


def write_combined(runs: Sequence[Run], out: str | Path) -> tuple[list[Path], list[Path]]:
    """Write combined.md and the figure `combined` (PDF, PNG, CSV), if there are combinations to compare.

    Returns:
        Tables and figures written; both empty if `combined_summary` finds nothing to compare.
    """
    summary = combined_summary(combined_frame(runs))
    if summary.empty:
        return [], []
    table = Path(out) / "combined.md"
    table.write_text(combined_markdown(summary))
    return [table], save_figure(draw_combined(summary), summary, out, "combined")


def combined_markdown(summary: pd.DataFrame) -> str:
    """One table per panel: where bytes went, with their share of all off in brackets."""
    columns: dict[str, Cell] = {
        "combination": lambda row: row["combination"],
        "n": lambda row: str(row["n"]),
        "read from storage": _bytes("storage_bytes", "storage_share"),
        "fresh examples": lambda row: _spread(row, "fresh", _count),
        "repeats": lambda row: _spread(row, "repeats", _count),
        "given again by the pipeline": _bytes("reused_bytes"),
        "pushed": _bytes("pushed_bytes"),
        "pulled": _bytes("pulled_bytes"),
        "on the wire": _bytes("wire_bytes", "network_share"),
        "kept for backward, mean": _bytes("kept_bytes_mean", "memory_share"),
        "at most": lambda row: _number(row["kept_bytes_max_max"], kilobytes),
        "seconds": lambda row: _spread(row, "seconds", three_figures),
        "of them data, network": _waits,
        "top-1": lambda row: _spread(row, "top1", lambda share: f"{100 * share:.1f}%"),
    }
    parts = []
    for key, rows in summary.groupby(PANEL_KEYS, sort=True):
        dataset, label, model, storage, network, processes, setting = key
        several = "" if processes == 1 else "es"
        updates = " or ".join(f"{count:,.0f}" for count in sorted(set(rows["updates_mean"])))
        hardware = " / ".join(sorted(set(rows["hardware"])))
        facts = (
            f"Storage {storage}, network {network}, {processes} process{several}; {updates} updates; mean "
            "over n seeds (smallest to largest), bytes in brackets against all off. Bytes kept for backward "
            f"are those of one process, each storage once. Setting {setting}; {hardware}."
        )
        parts.append(f"### {dataset} · {label} · {model}\n\n{facts}\n\n{markdown_table(rows, columns)}\n")
    return "\n".join(parts)


def _bytes(measure: str, share: str | None = None) -> Cell:
    def cell(row: Mapping[Any, Any]) -> str:
        text = _number(row[f"{measure}_mean"], kilobytes)
        if share is None or row[share] != row[share]:
            return text
        return f"{text} ({100 * row[share]:.3g}%)"

    return cell


def _waits(row: Mapping[Any, Any]) -> str:
    return f"{_number(row['wait_s_mean'], three_figures)}, {_number(row['network_s_mean'], three_figures)}"


def _spread(row: Mapping[Any, Any], measure: str, show: Callable[[float], str]) -> str:
    mean, low, high = (row[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    return show(mean) if show(low) == show(high) else f"{show(mean)} ({show(low)} to {show(high)})"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _number(value: float, show: Callable[[float], str]) -> str:
    return NOTHING if value != value else show(value)
