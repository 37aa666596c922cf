"""The combined experiment for people: its table and its figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.combined.figure import draw_combined
from pcr_exp.analysis.combined.table import OFF, PANEL_KEYS, combined_frame, combined_summary
from pcr_exp.analysis.core.cells import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    kilobytes,
    markdown_table,
    number,
    percent,
    spread_cell,
    three_figures,
)
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.analysis.core.read_runs import Run


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
    parts = []
    for key, rows in summary.groupby(PANEL_KEYS, sort=True):
        dataset, label, model, storage, network, processes, setting = key
        several = "" if processes == 1 else "es"
        notes = Footnotes()
        updates = " or ".join(f"{count:,.0f}" for count in sorted(set(rows["updates_mean"])))
        hardware = " / ".join(sorted(set(rows["hardware"])))
        facts = (
            f"Storage {storage}, network {network}, {processes} process{several}; {updates} updates; mean "
            "over n seeds (smallest to largest), bytes in brackets against all off; speed-up and difference: "
            "against all off of the same seed, the latter ± half its 95 % interval (Student's t over seeds). "
            "Bytes kept for backward are those of one process, each storage once. "
            f"Setting {setting}; {hardware}."
        )
        table = markdown_table(rows, _columns(notes))
        footer = f"\n{notes}\n" if str(notes) else ""
        parts.append(f"### {dataset} · {label} · {model}\n\n{facts}\n\n{table}\n{footer}")
    return "\n".join(parts)


def _columns(notes: Footnotes) -> dict[str, Cell]:
    def timed(cell: Cell) -> Cell:
        return lambda row: notes.refuse(row["no_seconds"]) if row["no_seconds"] else cell(row)

    return {
        "combination": lambda row: row["combination"],
        "n": lambda row: notes.count(row["n"]),
        "read from storage": _bytes("storage_bytes", "storage_share"),
        "fresh examples": lambda row: spread_cell(row, "fresh", "{:,.0f}".format),
        "repeats": lambda row: spread_cell(row, "repeats", "{:,.0f}".format),
        "given again by the pipeline": _bytes("reused_bytes"),
        "pushed": _bytes("pushed_bytes"),
        "pulled": _bytes("pulled_bytes"),
        "on the wire": _bytes("wire_bytes", "network_share"),
        "kept for backward, mean": _bytes("kept_bytes_mean", "memory_share"),
        "at most": lambda row: number(row["kept_bytes_max_max"], kilobytes),
        "seconds": timed(lambda row: spread_cell(row, "seconds", three_figures)),
        "of them data, network": timed(_waits),
        "speed-up": timed(_speedup),
        "last top-1": lambda row: spread_cell(row, "final_top1", percent),
        "its best": lambda row: spread_cell(row, "best_top1", percent),
        "majority class": lambda row: percent(row["majority_share"]),
        "difference, points": lambda row: difference_cell(row, notes),
    }


def _speedup(row: Mapping[Any, Any]) -> str:
    spread = {
        f"x_{part}": row[f"speedup{end}"] for part, end in (("mean", ""), ("min", "_min"), ("max", "_max"))
    }
    return NOTHING if row["combination"] == OFF else spread_cell(spread, "x", "{:.2f} x".format)


def _bytes(measure: str, share: str | None = None) -> Cell:
    def cell(row: Mapping[Any, Any]) -> str:
        text = number(row[f"{measure}_mean"], kilobytes)
        if share is None or row[share] != row[share]:
            return text
        return f"{text} ({100 * row[share]:.3g}%)"

    return cell


def _waits(row: Mapping[Any, Any]) -> str:
    return ", ".join(number(row[f"{wait}_mean"], three_figures) for wait in ("wait_s", "network_s"))
