"""An index where it lies: `index.json`, and beside a large one `index.table`, which spares parsing it."""

from __future__ import annotations

import logging
from pathlib import Path

from pcr_exp.errors import MissingFileError, PcrExpError, RecordError
from pcr_exp.records.entries import TABLE_FILE
from pcr_exp.records.index import INDEX_FILE, MAX_INDEX_BYTES, RecordIndex, dump_index, parse_index
from pcr_exp.records.index_table import HEAD_BYTES_OF_INDEX, dump_table, parse_table
from pcr_exp.records.strict_json import UnfitError
from pcr_exp.storage import RangeReader
from pcr_exp.storage.opening import opening
from pcr_exp.system.atomic import write_atomic

log = logging.getLogger(__name__)

LARGE_BYTES = 2**20
"""From this many on an index has a table: some 4,000 records of ten groups. Less is parsed in no time."""


def write_index(folder: Path, index: RecordIndex) -> None:
    """Write `index.json` into a folder, last; before it, if it is large, `index.table`.

    A table is of no other index than that which it was made of: whoever comes between finds the old index
    without one.

    Raises:
        RecordError: as `dump_index`.
        StorageError: the disk refuses.
    """
    data, table = dump_index(index), folder / TABLE_FILE
    if len(data) >= LARGE_BYTES:
        write_atomic(table, [dump_table(index, data)])
    else:
        table.unlink(missing_ok=True)
    write_atomic(folder / INDEX_FILE, [data])


def read_index(storage: RangeReader, folder: str) -> RecordIndex:
    """The index of the records in `folder`, by its table if it has one.

    Raises:
        RecordError: there is none, or it cannot be used.
        StorageError: it cannot be read.
    """
    path = path_below(folder, INDEX_FILE)
    try:
        with opening():
            num_bytes = storage.size(path)
            found = _by_table(storage, folder, num_bytes) if num_bytes >= LARGE_BYTES else None
            data = b"" if found is not None else storage.read(path, 0, min(num_bytes, MAX_INDEX_BYTES + 1))
    except (MissingFileError, OSError) as error:
        raise RecordError(
            f"no records can be opened at {path}: {error} "
            "Make them with `python -m experiments.prepare` and the same dataset and records.root."
        ) from error
    return found if found is not None else parse_index(data, path)


def unfit_table(storage: RangeReader, folder: str) -> str | None:
    """Why `index.table` is left alone and `index.json` parsed instead; None if it is not so, or not there.

    Raises:
        StorageError: `index.json` cannot be looked at.
    """
    num_bytes = storage.size(path_below(folder, INDEX_FILE))
    try:
        _table(storage, folder, num_bytes)
    except (UnfitError, PcrExpError) as error:
        return str(error)
    return None


def _by_table(storage: RangeReader, folder: str, index_bytes: int) -> RecordIndex | None:
    """The index by its table, if there is one that is of this index."""
    try:
        return _table(storage, folder, index_bytes)
    except (UnfitError, PcrExpError) as error:
        log.warning("%s. It is left alone, and index.json is parsed instead.", str(error).rstrip("."))
        return None


def _table(storage: RangeReader, folder: str, index_bytes: int) -> RecordIndex | None:
    """The index by its table; None if there is none. Raises UnfitError or PcrExpError where it is unfit."""
    path = path_below(folder, TABLE_FILE)
    try:
        num_bytes = storage.size(path)
    except (PcrExpError, OSError):
        return None
    if num_bytes > MAX_INDEX_BYTES:
        raise UnfitError(f"{path} has {num_bytes} bytes, more than the {MAX_INDEX_BYTES} of an index")
    start = storage.read(path_below(folder, INDEX_FILE), 0, HEAD_BYTES_OF_INDEX)
    return parse_table(storage.read(path, 0, num_bytes), index_bytes, start, path)


def path_below(folder: str, file: str) -> str:
    """Where a file of a folder lies in a storage, whose own folder is called ""."""
    return f"{folder}/{file}" if folder else file
