"""A run's rows: checked, written, read, compared and combined over processes, by one table of columns."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pcr_exp.errors import RunError
from pcr_exp.system.atomic import explain_os_error, write_atomic
from pcr_exp.system.columns import ROW_KINDS, Column
from pcr_exp.training.clocks import NAMES as CLOCKS
from pcr_exp.training.columns import COLUMNS, TRAFFIC, metric_column
from pcr_exp.training.distributed.exchange import Exchange
from pcr_exp.training.distributed.processes import Processes

Row = dict[str, Any]

_CLOCK_TOLERANCE = 0.01


def validate_row(row: Mapping[str, Any], columns: Sequence[Column] = COLUMNS) -> None:
    """Check one row against a table of columns.

    Args:
        row: A row as stored in `rows.jsonl`.
        columns: All columns that the run's rows may have; see `with_declared`.

    Raises:
        RunError: a column is missing, unknown or has an invalid value, or the clocks do not add up to the
            wall time.
    """
    kind = row.get("kind")
    if kind not in ROW_KINDS:
        raise RunError(f"row: kind={kind!r}; wanted {' or '.join(ROW_KINDS)}.")
    of_kind = {column.name: column for column in columns if kind in column.rows}
    if kind == "eval":  # the task determines its metrics
        metrics = (metric_column(name) for name in row if name.startswith("val_") and name not in of_kind)
        of_kind |= {column.name: column for column in metrics}
    of_team = any(name in row for name, column in of_kind.items() if column.presence == "team")
    needed = {"always", "team"} if of_team else {"always"}
    missing = sorted(
        name for name, column in of_kind.items() if column.presence in needed and name not in row
    )
    unknown = sorted(row.keys() - of_kind.keys() - {"kind"})
    if missing or unknown:
        raise RunError(f"{kind} row: missing columns {missing}, unknown columns {unknown}.")
    for name, column in of_kind.items():
        if name in row and (wanted := column.problem(row[name], kind)):
            raise RunError(f"{kind} row: {name}={row[name]!r}; wanted {wanted}.")
    total_s = sum(row[f"{clock}_s"] for clock in CLOCKS)
    if abs(total_s - row["wall_s"]) > _CLOCK_TOLERANCE * max(row["wall_s"], 1):
        raise RunError(f"{kind} row: the clocks add up to {total_s} s; wanted wall_s={row['wall_s']} s.")


def read_rows(path: Path, columns: Sequence[Column] = COLUMNS) -> list[Row]:
    """Read and validate all rows of a run.

    Args:
        path: `rows.jsonl`.
        columns: All columns that the run's rows may have; see `with_declared`.

    Raises:
        RunError: the file is missing, a line is not a valid row, or a cumulative value falls; the message
            names file and line.
    """
    if not path.is_file():
        raise RunError(f"{path} is not there: wanted the rows of a run.")
    rows: list[Row] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise RunError(f"row: {line[:40]!r}; wanted a JSON object.")
            append_checked(rows, row, columns)
        except (json.JSONDecodeError, RunError) as error:
            raise RunError(f"{path}, line {number}: {error}") from error
    return rows


def append_checked(rows: list[Row], row: Row, columns: Sequence[Column] = COLUMNS) -> None:
    """Validate a row that was written earlier, and append it.

    Raises:
        RunError: `validate_row` rejects it, or a cumulative value is lower than in the last of `rows`.
    """
    validate_row(row, columns)
    before = rows[-1] if rows else {}
    for column in columns:
        name = column.name
        if column.grows and name in row and name in before and row[name] < before[name]:
            raise RunError(f"{name} fell from {before[name]} to {row[name]}; wanted it to grow.")
    rows.append(row)


def deterministic_part(rows: Iterable[Row], columns: Sequence[Column] = COLUMNS) -> list[Row]:
    """Return rows without the columns that may differ between two runs of one configuration.

    On a CPU, a run that was interrupted and resumed has the same deterministic part as an uninterrupted one.
    """
    dropped = {column.name for column in columns if not column.deterministic}
    return [{name: value for name, value in row.items() if name not in dropped} for row in rows]


def team_row(row: Row, exchange: Exchange, processes: Processes, columns: Sequence[Column] = COLUMNS) -> Row:
    """Combine the rows of all processes into one, summing their own counters and their traffic.

    Every process calls this with its own version of the row. A single process gets its row back.
    """
    if exchange.traffic is None:
        return row
    row = {**row, **{name: getattr(exchange.traffic, name) for name in TRAFFIC}}
    summed = [c for c in columns if c.combine == "sum" and c.name in row]
    totals = processes.totals([row[column.name] for column in summed])
    joined = {
        column.name: int(total) if column.kind == "count" else total
        for column, total in zip(summed, totals, strict=True)
    }
    return {**row, **joined, "network_s": exchange.network_s}


class RowFile:
    """File of rows, one line of JSON each; a row is in the file when `append` returns."""

    def __init__(self, path: Path, num_rows: int, columns: Sequence[Column] = COLUMNS) -> None:
        """Open `path` for appending, truncated to its first `num_rows` rows.

        A resumed run repeats the updates after its last checkpoint, so the rows of those are dropped.

        Args:
            path: `rows.jsonl`.
            num_rows: Number of rows when the checkpoint was made.
            columns: All columns that the run's rows may have; see `with_declared`.

        Raises:
            RunError: the file has fewer rows.
        """
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        complete = [line for line in lines if line.endswith(b"\n")]
        if len(complete) < num_rows:
            raise RunError(
                f"{path} has {len(complete)} rows, but the run's checkpoint was made after {num_rows}. "
                "Delete the run directory to start the run again."
            )
        if len(lines) != num_rows:
            write_atomic(path, complete[:num_rows])
        self.num_rows = num_rows
        self._columns = columns
        self._file = path.open("ab", buffering=0)  # what could not be written is not tried again

    def append(self, row: Row) -> None:
        """Validate and write a row.

        Raises:
            RunError: the row does not fit the schema.
            StorageError: the disk is full or cannot be written.
        """
        validate_row(row, self._columns)
        try:
            rest = memoryview(json.dumps(row, allow_nan=False).encode() + b"\n")
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            raise explain_os_error(error, Path(self._file.name)) from error
        self.num_rows += 1

    def sync(self) -> None:
        """Flush all rows to disk: a checkpoint may count only rows that a crash cannot lose.

        Raises:
            StorageError: the disk is full or cannot be written.
        """
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise explain_os_error(error, Path(self._file.name)) from error

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
