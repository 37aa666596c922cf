"""Read CSV, JSON lines and Parquet tables with pandas, as columns of plain values."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcr_exp.errors import DatasetError

if TYPE_CHECKING:
    import pandas as pd

PARQUET, JSON_LINES = (".parquet", ".pq"), (".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", *JSON_LINES, *PARQUET)
"""Suffixes of tables; a file with another suffix is read as CSV."""


def read_columns(
    table: Path, wanted: Sequence[str], remedy: str, *, as_json: Collection[str] = ()
) -> tuple[list[list[Any]], int]:
    """Return the wanted columns of a table, and the number of its first row (2 in CSV, after the header).

    Cells are strings, lists of strings (JSON lines and Parquet), or "" if empty. Cells of a CSV file are not
    converted: `07` stays `07`.

    Args:
        table: The file, whose suffix determines its kind.
        wanted: Names of columns.
        remedy: Advice for the error, on how to name the columns.
        as_json: Columns whose lists and objects are returned as JSON.

    Raises:
        DatasetError: it cannot be read, lacks a column, or is Parquet and pyarrow is not installed.
    """
    kind = table.suffix.lower()
    frame = _read(table, kind)
    lacking = [name for name in wanted if name not in frame.columns]
    if lacking:
        raise DatasetError(
            f"{table} has no column {lacking[0]!r}; it has {', '.join(map(str, frame.columns))}. {remedy}"
        )
    columns = [
        [_json_cell(cell) if name in as_json else _cell(cell) for cell in frame[name].tolist()]
        for name in wanted
    ]
    return columns, 1 if kind in PARQUET + JSON_LINES else 2


def _read(table: Path, kind: str) -> pd.DataFrame:
    import pandas as pd

    as_text: dict[str, Any] = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
    try:
        if kind in PARQUET:
            return pd.read_parquet(table, dtype_backend="pyarrow")
        if kind in JSON_LINES:
            lines = table.read_text(encoding="utf-8-sig").split("\n")  # strings may contain other line ends
            rows = [json.loads(line) for line in lines if line.strip()]
            return pd.DataFrame(rows, dtype=object)
        frame = pd.read_csv(table, sep="\t" if kind == ".tsv" else ",", **as_text)
    except ImportError as error:
        raise DatasetError(
            f"{table}: Parquet is read by pyarrow, which cannot be imported ({str(error).splitlines()[0]}). "
            "Install it: pip install 'pcr-exp[tables]'. CSV and JSON lines do not need it."
        ) from error
    except (OSError, ValueError, AttributeError) as error:  # includes pandas' and pyarrow's own errors
        name = "Parquet" if kind in PARQUET else "JSON lines" if kind in JSON_LINES else "CSV"
        raise DatasetError(
            f"{table} is not a readable {name} file ({error}). Wanted a table of images: a CSV file whose "
            f"first line names the columns, JSON lines, or Parquet ({' '.join(SUFFIXES)})."
        ) from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes superfluous first cells as names of rows
        raise DatasetError(
            f"{table}: its rows have more cells than its first line has names. Remove the commas at the ends "
            "of rows, or name the column."
        )
    return frame


def _json_cell(value: Any) -> str:
    """Convert a cell as `_cell` does, but a list or an object to JSON."""
    if isinstance(value, list | tuple | dict) or hasattr(value, "tolist"):
        return json.dumps(value, default=lambda array: array.tolist())
    return str(_cell(value))


def _cell(value: Any) -> str | list[str]:
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        members = value.tolist() if hasattr(value, "tolist") else value
        return [str(member) for member in members] if isinstance(members, list | tuple) else str(members)
    import pandas as pd

    return "" if value is None or value is pd.NA or value != value else str(value)
