"""`rows.jsonl` while a run writes it."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from pcr_exp.errors import RunError
from pcr_exp.runs.rows import Row, validate_row
from pcr_exp.system.atomic import explain_os_error, write_atomic
from pcr_exp.system.columns import Column
from pcr_exp.training.columns import COLUMNS


class RowFile:
    """Appends rows, each one line of JSON that is in the file when `append` returns."""

    def __init__(self, path: Path, num_rows: int, columns: Sequence[Column] = COLUMNS) -> None:
        """Keep the first `num_rows` rows of `path`, cut the rest off, and append after them.

        Rows behind the last checkpoint are of updates that a resumed run does again.

        Args:
            path: `rows.jsonl`.
            num_rows: How many rows there were when the checkpoint was made.
            columns: All that rows of the run may have; see `with_declared`.

        Raises:
            RunError: the file has fewer rows.
        """
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        complete = [line for line in lines if line.endswith(b"\n")]
        if len(complete) < num_rows:
            raise RunError(
                f"{path} has {len(complete)} rows, but the checkpoint beside it was made after {num_rows}. "
                "Delete the run directory to start the run again."
            )
        if len(lines) != num_rows:
            write_atomic(path, complete[:num_rows])
        self.num_rows = num_rows
        self._columns = columns
        self._file = path.open("ab")

    def append(self, row: Row) -> None:
        """Validate and write a row.

        Raises:
            RunError: it does not fit the schema.
            StorageError: the disk is full or refuses.
        """
        validate_row(row, self._columns)
        try:
            self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise explain_os_error(error, Path(self._file.name)) from error
        self.num_rows += 1

    def sync(self) -> None:
        """Return when all rows are on the disk: a checkpoint may only count rows that a crash cannot lose."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append everything from level INFO that `pcr_exp` logs; other handlers get it as well."""
    logger = logging.getLogger("pcr_exp")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()


def write_layers(path: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows so far; a run that compresses nothing gets no file.

    Raises:
        StorageError: the disk is full or refuses.
    """
    if not history:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(history[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_atomic(path, [text.getvalue().encode()])
