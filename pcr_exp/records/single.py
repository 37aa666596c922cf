"""Read and extract one or a few images of a record, by small reads; each piece is verified separately."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from pcr_exp.errors import RecordError
from pcr_exp.records.format import RecordHeader
from pcr_exp.records.groups import REMEDY, Table, table_bytes, unpack_table
from pcr_exp.records.reader import RecordSet

_NUM_CACHED_TABLES = 256


class Range(NamedTuple):
    """Bytes `start` to `end` of a file."""

    start: int
    end: int


def coalesced(ranges: Sequence[Range], max_gap_bytes: int) -> list[Range]:
    """Merge ranges that overlap or are at most `max_gap_bytes` apart; the result is sorted."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1].end <= max_gap_bytes:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, end))
        else:
            merged.append(Range(start, end))
    return merged


class _Found(NamedTuple):
    """The cached part of a record: its labels (int64 [N] each) and the table of its first group."""

    labels: dict[str, npt.NDArray[np.int64]]
    table: Table


class SingleImages:
    """Reader of one or a few images of a record set at a time. Thread safe.

    The header and the tables (12 bytes per image and group) are read first and cached for recent records.
    Each piece then takes one read of exactly its bytes. Damaged bytes from remote storage or a cache are read
    once more.
    """

    def __init__(self, records: RecordSet, num_cached_tables: int = _NUM_CACHED_TABLES) -> None:
        """Cache up to `num_cached_tables` tables of 16 bytes per image; there is one per record and group."""
        self.records = records
        self._open = functools.lru_cache(_NUM_CACHED_TABLES)(self._read_header)
        self._found = functools.lru_cache(num_cached_tables)(self._find)
        self._table = functools.lru_cache(num_cached_tables)(self._read_table)

    def read(self, record: int, i: int, group: int) -> bytes:
        """Read image i of a record as a file, from its pieces of groups 1 to `group`.

        Raises:
            IndexError: the record has no such image.
            RecordError: the records lack the group; the image is cut short or damaged.
            StorageError: the storage could not deliver.
        """
        self._require(record, [i], group)

        def read() -> bytes:
            pieces = [self._read_piece(record, i, number) for number in range(1, group + 1)]
            return b"".join(self.records.codec.join(pieces))

        return self.records.read_verified(record, read)

    def _require(self, record: int, numbers: Sequence[int], group: int) -> None:
        self.records.index.check_group(group)
        num_samples = self.records.index.records[record].num_samples
        for i in numbers:
            if not 0 <= i < num_samples:
                raise IndexError(f"sample {i} is out of range for a record of {num_samples} samples")

    def read_piece(self, record: int, i: int, group: int) -> bytes:
        """Read the piece that one scan group adds to image i of a record. Raises as `read` does."""
        return self.records.read_verified(record, lambda: self._read_piece(record, i, group))

    def read_several(
        self, record: int, numbers: Sequence[int], group: int, *, max_gap_bytes: int
    ) -> list[bytes]:
        """Read some images of a record as files, in the given order. Raises as `read` does.

        Pieces at most `max_gap_bytes` apart are read together.
        """
        self._require(record, numbers, group)
        return self.records.read_verified(
            record, lambda: self._read_several(record, numbers, group, max_gap_bytes)
        )

    def _read_several(
        self, record: int, numbers: Sequence[int], group: int, max_gap_bytes: int
    ) -> list[bytes]:
        tables = [self.table(record, number) for number in range(1, group + 1)]
        ranges = [[Range(*table.bounds[i : i + 2].tolist()) for table in tables] for i in numbers]
        filled = [piece for pieces in ranges for piece in pieces if piece.end > piece.start]
        byte_ranges = coalesced(filled, max_gap_bytes)
        starts = [byte_range.start for byte_range in byte_ranges]
        data = [self.records.read_range(record, *byte_range) for byte_range in byte_ranges]
        images = []
        for i, pieces in zip(numbers, ranges, strict=True):
            parts = []
            for number, (start, end) in enumerate(pieces, start=1):
                which = bisect_right(starts, start) - 1 if end > start else 0
                part = data[which][start - starts[which] : end - starts[which]] if end > start else b""
                self._verify(part, record, i, number, end - start)
                parts.append(part)
            images.append(b"".join(self.records.codec.join(parts)))
        return images

    def labels(self, record: int) -> dict[str, npt.NDArray[np.int64]]:
        """Class indexes of a record's images by label, int64 [N]. Raises as `read` does."""
        return self.records.read_verified(record, lambda: self._found(record)).labels

    def _read_piece(self, record: int, i: int, group: int) -> bytes:
        start, end = self.table(record, group).bounds[i : i + 2].tolist()
        piece = self.records.read_range(record, start, end) if end > start else b""
        self._verify(piece, record, i, group, end - start)
        return piece

    def _verify(self, piece: bytes, record: int, i: int, group: int, num_bytes: int) -> None:
        wanted = self.table(record, group).checksums[i]
        if len(piece) != num_bytes or xxhash.xxh3_64_intdigest(piece) != wanted:
            # The cached table may be damaged: only the checksums of the pieces reveal that.
            for kept in (self._open, self._found, self._table):
                kept.cache_clear()
            raise RecordError(
                f"image {i} in group {group} of record {self.records.path(record)} is cut short or damaged: "
                f"the checksum does not match. {REMEDY}"
            )

    def header(self, record: int) -> RecordHeader:
        """A record's header, verified. Raises as `read` does."""
        return self.records.read_verified(record, lambda: self._open(record))[0]

    def table(self, record: int, group: int) -> Table:
        """Offsets and checksums of a group's pieces. Raises as `read` does."""
        return self._found(record).table if group == 1 else self._table(record, group)

    def _find(self, record: int) -> _Found:
        header, table = self._open(record)
        labels = {name: np.array(values, dtype=np.int64) for name, values in header.labels.items()}
        return _Found(labels, table)

    def _read_header(self, record: int) -> tuple[RecordHeader, Table]:
        entry = self.records.stored(record)
        where = f"record {self.records.path(record)}"
        end = entry.header_bytes + table_bytes(entry.num_samples)
        data = self.records.read_range(record, 0, end)
        header, start = self.records.unpack_header(data, entry, where)
        return header, unpack_table(
            data[start:], start, entry.group_ends[0], entry.num_samples, f"group 1 of {where}"
        )

    def _read_table(self, record: int, group: int) -> Table:
        entry = self.records.stored(record)
        start, end = entry.group_ends[group - 2 : group]
        table_end = start + table_bytes(entry.num_samples)
        where = f"group {group} of record {self.records.path(record)}"
        return unpack_table(
            self.records.read_range(record, start, table_end), start, end, entry.num_samples, where
        )


def find_image(splits: Sequence[tuple[RecordSet, Sequence[int]]], image: str) -> tuple[RecordSet, int, int]:
    """Return (records, record, index in it) of an image.

    Args:
        splits: Records to search, and the numbers of those that count.
        image: Its id in any of them, or its position in the first.

    Raises:
        RecordError: there is no such image.
    """
    first, numbers = splits[0]
    sizes = [first.index.records[number].num_samples for number in numbers]
    if image.isdecimal():
        position = int(image)
        for number, size in zip(numbers, sizes, strict=True):
            if position < size:
                return first, number, position
            position -= size
    else:
        for records, searched in splits:
            images = SingleImages(records)
            for number in searched:
                ids = images.header(number).ids
                if image in ids:
                    return records, number, ids.index(image)
    where = ", ".join(str(records.folder or records.storage) for records, _ in splits)
    raise RecordError(
        f"{where}: there is no image {image!r}. Wanted an image's id, or its position from 0 to "
        f"{sum(sizes) - 1} in {first.index.split}."
    )


def extract_image(records: RecordSet, record: int, i: int, group: int, *, pieces_only: bool) -> bytes:
    """Return an image at a scan group as a verified file; `pieces_only` omits the end marker.

    Raises:
        RecordError: the records lack the group, or the image is damaged.
    """
    images = SingleImages(records)
    if pieces_only:
        records.index.check_group(group)
        return b"".join(images.read_piece(record, i, number) for number in range(1, group + 1))
    return images.read(record, i, group)
