"""`index.table`: the entries of a large index as fixed-length rows that need no parsing.

    magic (8) | format version u32 | head length u32 | bytes of index.json u64
    xxh3_64 of its first 4,096 bytes u64 | number of rows u64 | F u32 | P u32
    xxh3_64 of all bytes but these eight u64
    head: index.json with an empty list of records
    rows: file (F bytes) | num_samples u32 | header_bytes u64 | group_ends, G x u64 | fingerprint (P bytes)

Numbers are little-endian without padding; strings are ASCII, padded with zeros. The table repeats contents of
`index.json` and is used only with the exact file that it was made from. Programs that do not know it can
therefore change records freely. For 10^6 records, Python objects take 2 GB in every process and rows 110 MB.
The file is read, not memory-mapped: truncating a mapped file kills the process.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from pcr_exp.errors import MissingFileError, PcrExpError, RecordError
from pcr_exp.records.format import MAX_SAMPLES, MIN_HEADER_BYTES, VERSION
from pcr_exp.records.groups import table_bytes
from pcr_exp.records.index import (
    INDEX_FILE,
    MAX_INDEX_BYTES,
    MAX_RECORD_BYTES,
    TABLE_FILE,
    EntryTable,
    RecordIndex,
    dump_index,
    parse_index,
    row_type,
)
from pcr_exp.records.strict_json import MAX_HEX_KEY, MAX_WORD, UnfitError
from pcr_exp.storage.protocol import Storage, opening
from pcr_exp.system.atomic import write_atomic

MAGIC = b"\x89PCT\r\n\x1a\n"

HEAD_BYTES_OF_INDEX = 4096
"""These first bytes of an index include its checksum, so they identify it."""

_PREAMBLE = struct.Struct("<8sIIQQQII")

_CHECKSUM = struct.Struct("<Q")

_HEAD_START = _PREAMBLE.size + _CHECKSUM.size

_PER_GROUP = table_bytes(0)

_PER_SAMPLE = table_bytes(1) - _PER_GROUP

_ROWS_AT_ONCE = 2**14


def dump_table(index: RecordIndex, index_file: bytes) -> bytes:
    """Return the bytes of `index.table` for an index whose `index.json` has the bytes `index_file`.

    Raises:
        RecordError: as in `dump_index`.
    """
    entries = index.records
    texts = [(entry.file.encode(), (entry.fingerprint or "").encode()) for entry in entries]
    file_bytes = max([len(file) for file, _ in texts], default=1)
    fingerprint_bytes = max([len(fingerprint) for _, fingerprint in texts], default=1) or 1
    rows = np.array(
        [
            (file, entry.num_samples, entry.header_bytes, entry.group_ends, fingerprint)
            for entry, (file, fingerprint) in zip(entries, texts, strict=True)
        ],
        dtype=row_type(file_bytes, index.num_groups, fingerprint_bytes),
    )
    head = dump_index(replace(index, records=[]))
    preamble = _PREAMBLE.pack(
        MAGIC,
        VERSION,
        len(head),
        len(index_file),
        xxhash.xxh3_64_intdigest(index_file[:HEAD_BYTES_OF_INDEX]),
        len(entries),
        file_bytes,
        fingerprint_bytes,
    )
    rest = head + rows.tobytes()
    return preamble + _CHECKSUM.pack(_checksum(preamble, rest)) + rest


def parse_table(data: bytes, index_bytes: int, index_start: bytes, where: str) -> RecordIndex:
    """Return the index whose entries are in `data`; its rows are views of `data`.

    Args:
        data: All of `index.table`; `where` names it in errors.
        index_bytes: Size in bytes of the `index.json` in the same folder.
        index_start: Its first `HEAD_BYTES_OF_INDEX` bytes.

    Raises:
        UnfitError: the table is damaged, not a table of this version, or made from another `index.json`.
    """
    view = memoryview(data)
    if len(view) < _HEAD_START or bytes(view[: len(MAGIC)]) != MAGIC:
        raise UnfitError(f"{where} is not a table of records")
    preamble = view[: _PREAMBLE.size]
    _, version, head_bytes, of_bytes, of_start, num_rows, file_bytes, fingerprint_bytes = _PREAMBLE.unpack(
        preamble
    )
    if version != VERSION:
        raise UnfitError(f"{where} has format version {version}, wanted {VERSION}")
    if (of_bytes, of_start) != (index_bytes, xxhash.xxh3_64_intdigest(index_start)):
        raise UnfitError(f"{where} was made from a different index.json than the one next to it")
    if _CHECKSUM.unpack_from(view, _PREAMBLE.size) != (_checksum(preamble, view[_HEAD_START:]),):
        raise UnfitError(f"{where} is damaged: its checksum does not match")
    if not (1 <= file_bytes <= MAX_WORD and 1 <= fingerprint_bytes <= MAX_HEX_KEY):
        raise UnfitError(
            f"{where} has file names of {file_bytes} bytes and fingerprints of {fingerprint_bytes}, wanted 1 "
            f"to {MAX_WORD} and 1 to {MAX_HEX_KEY}"
        )
    rows_start = _HEAD_START + head_bytes
    try:
        head = parse_index(bytes(view[_HEAD_START:rows_start]), where)
    except RecordError as error:
        raise UnfitError(str(error)) from error
    of_a_row = row_type(file_bytes, head.num_groups, fingerprint_bytes)
    if len(view) != rows_start + num_rows * of_a_row.itemsize:
        raise UnfitError(f"{where} has {len(view)} bytes, wanted {num_rows} rows of {of_a_row.itemsize}")
    rows = np.frombuffer(view, of_a_row, count=num_rows, offset=rows_start)
    _check_rows(rows, where)
    return replace(head, records=EntryTable(rows))


def _check_rows(rows: npt.NDArray[Any], where: str) -> None:
    """Raise UnfitError if a row's numbers break the rules of `parse_index`. Works in blocks of rows."""
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[first : first + _ROWS_AT_ONCE]
        num_samples, ends = some["num_samples"].astype(np.int64), some["group_ends"]
        starts = np.concatenate([some["header_bytes"][:, None], ends[:, :-1]], axis=1)
        fits = (num_samples >= 1) & (num_samples <= MAX_SAMPLES) & (some["header_bytes"] >= MIN_HEADER_BYTES)
        # Unsigned: an end before its start wraps around to a size beyond any record.
        sizes, least = ends - starts, (num_samples * _PER_SAMPLE + _PER_GROUP).astype(np.uint64)
        fits &= ((sizes >= least[:, None]) & (sizes <= MAX_RECORD_BYTES) & (ends <= MAX_RECORD_BYTES)).all(1)
        if not fits.all():
            raise UnfitError(f"{where} has impossible values in row {first + int(np.argmin(fits))}")


def _checksum(preamble: bytes | memoryview, rest: bytes | memoryview) -> int:
    digest = xxhash.xxh3_64(preamble)
    digest.update(rest)
    return digest.intdigest()


log = logging.getLogger(__name__)

LARGE_BYTES = 2**20
"""Indexes of this size or more (some 4,000 records of ten groups) have a table; others parse fast."""


def write_index(folder: Path, index: RecordIndex) -> None:
    """Write `index.json` into a folder; if it is large, write `index.table` first.

    Each table belongs to one index. A reader between the two writes parses the old index.

    Raises:
        RecordError: as in `dump_index`.
        StorageError: the folder cannot be written to.
    """
    data, table = dump_index(index), folder / TABLE_FILE
    if len(data) >= LARGE_BYTES and not index.fields:  # rows have no room for fields
        write_atomic(table, [dump_table(index, data)])
    else:
        table.unlink(missing_ok=True)
    write_atomic(folder / INDEX_FILE, [data])


def read_index(storage: Storage, folder: str) -> RecordIndex:
    """Read the index of the records in `folder`, from its table if there is one.

    Raises:
        RecordError: there is no index, or it cannot be used.
        StorageError: the index cannot be read.
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


def unfit_table(storage: Storage, folder: str) -> str | None:
    """Return why `index.table` is ignored and `index.json` parsed instead; None if it is valid or absent.

    Raises:
        StorageError: the size of `index.json` cannot be read.
    """
    num_bytes = storage.size(path_below(folder, INDEX_FILE))
    try:
        _table(storage, folder, num_bytes)
    except (UnfitError, PcrExpError) as error:
        return str(error)
    return None


def _by_table(storage: Storage, folder: str, index_bytes: int) -> RecordIndex | None:
    """Return the index from its table; None if there is no table that fits this index."""
    try:
        return _table(storage, folder, index_bytes)
    except (UnfitError, PcrExpError) as error:
        log.warning("%s. It is ignored, and index.json is parsed instead.", str(error).rstrip("."))
        return None


def _table(storage: Storage, folder: str, index_bytes: int) -> RecordIndex | None:
    """Return the index from its table; None without one. Raises UnfitError or PcrExpError if unusable."""
    path = path_below(folder, TABLE_FILE)
    try:
        num_bytes = storage.size(path)
    except (PcrExpError, OSError):
        return None
    if num_bytes > MAX_INDEX_BYTES:
        raise UnfitError(f"{path} has {num_bytes} bytes, more than the limit of {MAX_INDEX_BYTES}")
    start = storage.read(path_below(folder, INDEX_FILE), 0, HEAD_BYTES_OF_INDEX)
    return parse_table(storage.read(path, 0, num_bytes), index_bytes, start, path)


def path_below(folder: str, file: str) -> str:
    """Path of a folder's file in a storage; "" is the storage's root folder."""
    return f"{folder}/{file}" if folder else file
