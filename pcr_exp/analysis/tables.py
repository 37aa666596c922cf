"""Markdown tables: cells and footnotes shared by all tables, and error handling for measurement files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.primary_metric import chance_level_of, metric_of
from pcr_exp.errors import RunError
from pcr_exp.training.columns import COLUMNS
from pcr_exp.training.task import TOP1

UNITS = {column.name: column.unit for column in COLUMNS}
"""Unit of each column of a run's rows."""

NOTHING = "-"

SINGLE_RUN = "†"

SINGLE_RUN_NOTE = "n = 1: one run, with no spread and no interval"

_NUMBERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

Cell = Callable[[Mapping[Any, Any]], str]


def markdown_table(rows: pd.DataFrame, columns: Mapping[str, Cell]) -> str:
    """Format a line per row; `columns` maps headers to cells. The first column is aligned left."""
    header = "| " + " | ".join(columns) + " |\n|" + " --- |" + " ---: |" * (len(columns) - 1)
    body = [
        "| " + " | ".join(cell(row) for cell in columns.values()) + " |" for row in rows.to_dict("records")
    ]
    return "\n".join([header, *body])


class Footnotes:
    """Footnotes of one table: each note has a number, and n = 1 has its own mark."""

    def __init__(self) -> None:
        """Start without notes."""
        self._notes: list[str] = []
        self._alone = False

    def mark(self, note: str) -> str:
        """Return the mark of a note, such as `¹`; a new note gets a new number."""
        if note not in self._notes:
            self._notes.append(note)
        return str(self._notes.index(note) + 1).translate(_NUMBERS)

    def refuse(self, note: str) -> str:
        """Return a cell without a value, with the reason as a footnote: `- ¹`."""
        return f"{NOTHING} {self.mark(note)}"

    def count(self, n: int) -> str:
        """Format a number of runs; a single run is marked."""
        self._alone |= n == 1
        return f"{n} {SINGLE_RUN}" if n == 1 else str(n)

    def __str__(self) -> str:
        """Return all notes as consecutive sentences; empty if there are none."""
        alone = [f"{SINGLE_RUN} {SINGLE_RUN_NOTE}."] if self._alone else []
        return " ".join(
            [*alone, *(f"{self.mark(note)} {note[0].upper()}{note[1:]}." for note in self._notes)]
        )


def three_figures(value: float) -> str:
    """Format a number with three figures, in full from 100 on; `-` for NaN and for infinity (no limit)."""
    return NOTHING if not math.isfinite(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """Format a share: 0.125 -> `12.5%`; `-` for NaN."""
    return NOTHING if math.isnan(share) else f"{100 * share:.1f}%"


def number(value: float, show: Callable[[float], str]) -> str:
    """Return `show(value)`, or `-` for NaN."""
    return NOTHING if math.isnan(value) else show(value)


def spread_cell(row: Mapping[Any, Any], measure: str, show: Callable[[float], str]) -> str:
    """Format `mean (smallest to largest)`; the mean alone if both ends print alike; `-` for NaN."""
    mean, low, high = (row[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    if math.isnan(mean) or show(low) == show(high):
        return number(mean, show)
    return f"{show(mean)} ({show(low)} to {show(high)})"


def median_cell(measure: str, show: Callable[[float], str]) -> Cell:
    """Return a cell: `median (smallest to largest)` of `n` values; the median if n = 1; `-` for NaN."""

    def cell(row: Mapping[Any, Any]) -> str:
        median, low, high = (row[f"{measure}_{statistic}"] for statistic in ("median", "min", "max"))
        if math.isnan(median):
            return NOTHING
        return show(median) if row["n"] == 1 else f"{show(median)} ({show(low)} to {show(high)})"

    return cell


def interval_cell(measure: str, show: Callable[[float], str]) -> Cell:
    """Return a cell: `value (low to high)`, of the columns `<measure>`, `<measure>_low` and `_high`."""
    return lambda row: (
        f"{show(row[measure])} ({show(row[f'{measure}_low'])} to {show(row[f'{measure}_high'])})"
    )


def difference_cell(row: Mapping[Any, Any], notes: Footnotes) -> str:
    """Format a paired difference in points ± half its 95 % interval, as `+0.4 ± 1.2`; n = 1 is marked."""
    if math.isnan(row["difference_mean"]):
        return NOTHING
    points = f"{100 * row['difference_mean']:+.1f}"
    if math.isnan(row["difference_ci95"]):
        notes.count(1)
        return f"{points} {SINGLE_RUN}"
    return f"{points} ± {three_figures(100 * row['difference_ci95'])}"


def timed(notes: Footnotes, cell: Cell) -> Cell:
    """Return a cell of seconds or rates, replaced by a footnote if `timing_excluded_because` has a reason."""
    return lambda row: (
        notes.refuse(row["timing_excluded_because"]) if row["timing_excluded_because"] else cell(row)
    )


def span(counts: pd.Series) -> str:
    """Format counts as `3`, or as `2 to 3` if they differ."""
    low, high = counts.min(), counts.max()
    return str(low) if low == high else f"{low} to {high}"


def with_unit(words: str, column: str) -> str:
    """Add the unit of a column of rows to the text of an axis or header: `training + data wait (s)`."""
    return f"{words} ({UNITS[column]})"


def task_title(dataset: str, label: str, model: str) -> str:
    """Return the title of a run's task, for tables and panels: `cars · make · resnet18`."""
    return f"{dataset} · {label} · {model}"


def score_cells(rows: pd.DataFrame) -> dict[str, Cell]:
    """Return columns of the rows' primary metric: last, best, and chance level."""
    headline = metric_of(rows)
    guess = "majority class" if headline is TOP1 else "guessing"
    return {
        f"last {headline.words}": lambda row: spread_cell(row, "final_score", percent),
        "its best": lambda row: spread_cell(row, "best_score", percent),
        guess: lambda row: percent(_or_nan(chance_level_of(row))),
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def section(title: str, facts: str, rows: pd.DataFrame, columns: Mapping[str, Cell], notes: Footnotes) -> str:
    """Return a title, a paragraph of facts, the table of rows, and the footnotes of its cells."""
    table = markdown_table(rows, columns)
    footer = f"\n{notes}\n" if str(notes) else ""
    return f"### {title}\n\n{facts}\n\n{table}\n{footer}"


def reached_cell(row: Mapping[Any, Any], notes: Footnotes, seconds: Cell) -> str:
    """Format the time to the target if all runs reached it and it may be shown, else how many did or why not.

    `row` has `n`, `num_reached`, `target_excluded_because` and `timing_excluded_because`.
    """
    if row["target_excluded_because"]:
        return notes.refuse(row["target_excluded_because"])
    if row["num_reached"] < row["n"]:
        return "not reached" if row["num_reached"] == 0 else f"reached by {row['num_reached']} of {row['n']}"
    return notes.refuse(row["timing_excluded_because"]) if row["timing_excluded_because"] else seconds(row)


def kilobytes(num_bytes: float) -> str:
    """Format bytes with three figures: 15400 -> `15.4 kB` (kB = 10^3)."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            value = num_bytes / size
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{num_bytes:.0f} B"


@contextmanager
def reading(folder: Path, remedy: str) -> Iterator[None]:
    """Turn errors about missing or unreadable files of `folder` into a RunError that ends in `remedy`."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(
            f"{folder} holds no complete measurement: {error.filename} is missing. {remedy}"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"the measurement in {folder} is damaged: {error}. {remedy}") from error


def require_columns(path: Path, rows: pd.DataFrame, wanted: Sequence[str], remedy: str) -> None:
    """Raise RunError unless the rows of a file have exactly the columns of this version, in order."""
    if list(rows.columns) != list(wanted):
        raise RunError(f"{path} has columns {list(rows.columns)}; wanted {list(wanted)}. {remedy}")
