"""Reading single images: small reads, each verified by itself."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import xxhash

from pcr_exp.errors import RecordError
from pcr_exp.records.format import RecordHeader
from pcr_exp.records.groups import Table, table_bytes, unpack_table
from pcr_exp.records.reader import RecordSet

_KEPT_TABLES = 256
_REMEDY = "Copy the file again from where it was made, or delete the records' folder and encode again."


@dataclass(frozen=True, slots=True)
class SingleImage:
    """One image at the fidelity of `group`; `labels` are class indexes by label."""

    id: str
    labels: dict[str, int]
    group: int
    encoded: bytes


class SingleImages:
    """The images of a record set, one at a time. Thread safe.

    What finds an image in its record is read first, and kept of the last records: the header, and 12 bytes
    per image and group. Then each group's piece is one read of no more than that. What came damaged from
    remote storage is read once more.
    """

    def __init__(self, records: RecordSet) -> None:
        """Raises RecordError if they are of format version 1, which has checksums of whole groups only."""
        if records.index.version == 1:
            raise RecordError(
                f"the records in {records.folder or 'this folder'} are of format version 1, of which single "
                "images cannot be verified: read whole prefixes, or prepare records of the newest version "
                "with records.reuse_from, which takes the images over without transcoding."
            )
        self.records = records
        self._open = functools.lru_cache(_KEPT_TABLES)(self._read_header)
        self._table = functools.lru_cache(_KEPT_TABLES)(self._read_table)

    def read(self, record: int, i: int, group: int) -> SingleImage:
        """Image i of a record as a JPEG file: its pieces of groups 1 to `group`.

        Raises:
            IndexError: the record has no such image.
            RecordError: the records lack the group; the image is cut short or damaged.
            StorageError: the storage could not deliver.
        """
        self.records.index.check_group(group)
        num_samples = self.records.index.records[record].num_samples
        if not 0 <= i < num_samples:
            raise IndexError(f"sample {i} of a record of {num_samples}")
        return self.records.read_verified(lambda: self._read(record, i, group))

    def _read(self, record: int, i: int, group: int) -> SingleImage:
        header, _ = self._open(record)
        pieces = [self._read_piece(record, i, number) for number in range(1, group + 1)]
        labels = {name: values[i] for name, values in header.labels.items()}
        return SingleImage(header.ids[i], labels, group, b"".join(self.records.codec.join(pieces)))

    def read_piece(self, record: int, i: int, group: int) -> bytes:
        """What one scan group adds to image i of a record. Raises as `read` does."""
        return self.records.read_verified(lambda: self._read_piece(record, i, group))

    def _read_piece(self, record: int, i: int, group: int) -> bytes:
        table = self.table(record, group)
        start, end = table.bounds[i : i + 2].tolist()
        piece = self.records.read_range(record, start, end) if end > start else b""
        if len(piece) != end - start or xxhash.xxh3_64_intdigest(piece) != table.checksums[i]:
            # The table may be what is damaged: it has no checksum but those of the pieces.
            self._open.cache_clear()
            self._table.cache_clear()
            raise RecordError(
                f"image {i} in group {group} of record {self.records.path(record)} is cut short or damaged: "
                f"the checksum does not match. {_REMEDY}"
            )
        return piece

    def header(self, record: int) -> RecordHeader:
        """A record's header, verified. Raises as `read` does."""
        return self._open(record)[0]

    def table(self, record: int, group: int) -> Table:
        """Where the pieces of a group are. Raises as `read` does."""
        return self._open(record)[1] if group == 1 else self._table(record, group)

    def _read_header(self, record: int) -> tuple[RecordHeader, Table]:
        entry = self.records.stored(record)
        where = f"record {self.records.path(record)}"
        end = entry.header_bytes + table_bytes(entry.num_samples, self.records.index.version)
        data = self.records.read_range(record, 0, end)
        header, start = self.records.unpack_header(data, entry, where)
        return header, unpack_table(
            data[start:], start, entry.group_ends[0], entry.num_samples, f"group 1 of {where}"
        )

    def _read_table(self, record: int, group: int) -> Table:
        entry = self.records.stored(record)
        start, end = entry.group_ends[group - 2 : group]
        table_end = start + table_bytes(entry.num_samples, self.records.index.version)
        where = f"group {group} of record {self.records.path(record)}"
        return unpack_table(
            self.records.read_range(record, start, table_end), start, end, entry.num_samples, where
        )
