"""Echoed runs side by side in Markdown: what they took to the target, and accuracy at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.markdown import (
    Cell,
    Footnotes,
    difference_cell,
    markdown_table,
    percent,
    reached_cell,
    spread_cell,
    three_figures,
)
from pcr_exp.analysis.core.style import kilobytes, scan_label
from pcr_exp.analysis.echo.look_figure import echo_panels, in_order, name_of


def echo_to_markdown(summary: pd.DataFrame) -> str:
    """A table per panel of `tuned`: means over n seeds (smallest to largest)."""
    parts = []
    for title, facts, rows in echo_panels(summary):
        notes = Footnotes()
        table = markdown_table(in_order(rows), _columns(notes))
        target = f"target {100 * rows['target_top1'].iloc[0]:g}%"
        words = (
            f"{facts}; {target}; mean over n seeds (smallest to largest); bytes are of records; difference: "
            "last top-1 less that of the same seed of the baseline with the smallest buffer, ± half its 95 % "
            f"interval (Student's t over seeds); {' / '.join(sorted(set(rows['hardware'])))}."
        )
        footer = f"\n{notes}\n" if str(notes) else ""
        parts.append(f"### {title}\n\n{words}\n\n{table}\n{footer}")
    return "\n".join(parts)


def _columns(notes: Footnotes) -> dict[str, Cell]:
    def timed(measure: str, factor: float) -> Cell:
        def cell(row: Mapping[Any, Any]) -> str:
            if row["no_seconds"]:
                return notes.refuse(row["no_seconds"])
            scaled = {key: factor * row[key] for key in row if str(key).startswith(f"{measure}_")}
            return spread_cell(scaled, measure, three_figures)

        return cell

    def until(measure: str, show: Any) -> Cell:
        """Counts of examples and bytes are no seconds."""

        def cell(row: Mapping[Any, Any]) -> str:
            said = {**row, "no_seconds": ""}
            return reached_cell(said, notes, lambda found: spread_cell(found, measure, show))

        return cell

    return {
        "echo": lambda row: name_of(row, with_factor=True),
        "scan": lambda row: scan_label(row["scan"]),
        "batch": lambda row: str(row["batch_size"]),
        "n": lambda row: notes.count(row["n"]),
        "updates": lambda row: f"{row['updates']:,}",
        "fresh examples": lambda row: f"{row['fresh']:,}",
        "bytes": lambda row: kilobytes(row["record_bytes_mean"]),
        "fresh examples to target": until("fresh_to_target", "{:,.0f}".format),
        "bytes to target": until("bytes_to_target", kilobytes),
        "seconds to target": lambda row: reached_cell(row, notes, timed("time_to_target_s", 1)),
        "ms per fresh example": timed("s_per_fresh", 1e3),
        "last top-1": lambda row: spread_cell(row, "final_top1", percent),
        "its best": lambda row: spread_cell(row, "best_top1", percent),
        "majority class": lambda row: percent(row["majority_share"]),
        "difference, points": lambda row: difference_cell(row, notes),
    }
