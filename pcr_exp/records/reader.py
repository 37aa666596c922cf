"""Read records: one range read returns all samples of a record at one fidelity."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.errors import RecordError
from pcr_exp.images import decode as decode  # registers the codecs of this package's own records
from pcr_exp.images.codec import Decoder, ImageCodec, find_codec
from pcr_exp.records.format import HEADER_START, RecordHeader, stated_header_bytes
from pcr_exp.records.groups import (
    ByteRange,
    Extension,
    RecordPrefix,
    check_length,
    unpack_group,
)
from pcr_exp.records.headers import KnownHeaders
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.records.index_table import path_below, read_index
from pcr_exp.storage.protocol import Storage

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class RecordSet:
    """A split in one encoding: the folder that holds `index.json` and its records. Thread safe."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        max_samples: int | None = None,
        *,
        max_pixels: int = MAX_PIXELS,
        index: RecordIndex | None = None,
        codec: ImageCodec | None = None,
    ) -> None:
        """`max_pixels` is the limit that decoders of the images apply (`records.max_pixels`).

        `index` replaces the folder's index, which is then not read.
        `codec` replaces the codec named in the index.

        With `max_samples`, the set contains only the first samples, which are a random subset. The last
        record is read in full, but only its first samples are returned. `self.index` lists only the subset.

        Raises:
            RecordError: there is no index, it cannot be used, or its codec is unknown.
        """
        self.max_pixels = max_pixels
        self._stored: RecordIndex = index or read_index(storage, folder)
        self.index = self._stored if max_samples is None else self._stored.first_samples(max_samples)
        self.folder = folder
        self.storage = storage
        """Storage that the bytes are read from."""
        self._headers = KnownHeaders(self.index)
        self.codec = codec or find_codec(self.index.scans, self.path_of("index.json"))

    def source_of(self, record: int) -> str | None:  # noqa: ARG002
        """The mixture's source that a record belongs to; None, because this is not a mixture."""
        return None

    @property
    def reads_many(self) -> bool:
        """Whether one call for several records is faster than one call each, as the storage reports."""
        return self.storage.reads_many

    def read_range(self, record: int, start: int, end: int) -> bytes:
        """Read the bytes `start` to `end` of a record, unverified; fewer at the end of its file.

        Raises:
            StorageError: the storage could not deliver.
        """
        return self.storage.read(self.path(record), start, end - start)

    def path(self, record: int) -> str:
        """Path of a record in the storage."""
        return self.path_of(self.index.records[record].file)

    def path_of(self, file: str) -> str:
        """Path of a file of the folder in the storage."""
        return path_below(self.folder, file)

    def open_decoder(self, mode: str) -> Decoder:
        """Return the decoder of these records' images, for `loader.decode=<mode>`."""
        return self.codec.open_decoder(mode, self.max_pixels)

    def read_verified(self, record: int, read: Callable[[], Result]) -> Result:
        """Call `read`, which reads a record and verifies it; retry once where that may help.

        A disk returns the same bytes the second time, but bytes damaged by a network may be intact in
        storage. A cache drops the record, so that no damage stays in it. `read` must raise RecordError only
        for damaged bytes.

        Raises:
            RecordError: the bytes are cut short or damaged, both times if they were read twice.
        """
        try:
            return read()
        except RecordError as error:
            was_cached = self.storage.forget(self.path(record))
            if not (was_cached or self.storage.is_remote):
                raise
            log.warning("%s It is read once more, since it came from %s.", error, self.storage)
        try:
            return read()
        except RecordError as error:
            self.storage.forget(self.path(record))
            raise RecordError(
                f"{error} It was read twice from {self.storage}, and was damaged both times: either it is "
                "damaged there, or something on the way (a proxy, a cache) damages it each time."
            ) from error

    def stored(self, record: int) -> RecordEntry:
        """Entry of a record as stored, with all its samples whatever `max_samples` is."""
        return self._stored.records[record]

    def describe(self, record: int, group: int, after: int = 0) -> str:
        """Describe the bytes that `read_prefix` reads; with `after`, those that `read_extension` reads."""
        num_bytes = self.index.prefix_bytes(record, group) - self._start(record, after)
        what = f"{num_bytes} bytes: scan groups {after + 1} to {group}"
        return f"{self.path(record)} ({what}) from {self.storage}"

    def read_prefix(self, record: int, group: int) -> RecordPrefix:
        """Read groups 1 to `group` of a record, with exactly one read, and verify them.

        Damaged bytes from remote storage or a cache are read once more.

        Raises:
            RecordError: the records lack the group; the file is cut short, damaged, or of another index.
            StorageError: the storage could not deliver.
        """
        num_bytes = self.index.prefix_bytes(record, group)
        return self.read_verified(record, lambda: self._read_prefix(record, group, num_bytes))

    def read_damaged_prefix(self, record: int, group: int) -> tuple[RecordPrefix, set[int]]:
        """Read a record that `read_prefix` rejected, and also return the indices of its damaged images.

        Raises:
            RecordError: the file is cut short, or its header or a table is damaged.
            StorageError: the storage could not deliver.
        """
        damaged: set[int] = set()
        prefix = self._read_prefix(record, group, self.index.prefix_bytes(record, group), damaged)
        return prefix, damaged

    def read_prefixes(self, wanted: Sequence[tuple[int, int]]) -> list[RecordPrefix]:
        """Read the prefix of each (record, group) with one call to the storage.

        Raises:
            RecordError, StorageError: as in `read_prefix`, for any of them; nothing is read twice.
        """
        sizes = [self.index.prefix_bytes(*one) for one in wanted]
        ranges = [(self.path(record), 0, size) for (record, _), size in zip(wanted, sizes, strict=True)]
        found = self.storage.read_many(ranges)
        return [
            self._prefix_of(data, record, group, size)
            for data, (record, group), size in zip(found, wanted, sizes, strict=True)
        ]

    def _read_prefix(
        self, record: int, group: int, num_bytes: int, damaged: set[int] | None = None
    ) -> RecordPrefix:
        return self._prefix_of(self.read_range(record, 0, num_bytes), record, group, num_bytes, damaged)

    def _prefix_of(
        self, data: bytes, record: int, group: int, num_bytes: int, damaged: set[int] | None = None
    ) -> RecordPrefix:
        entry = self.stored(record)
        where = f"record {self.path(record)}"
        check_length(data, num_bytes, 0, group, where)
        header, start = self.unpack_header(data[: stated_header_bytes(data[:HEADER_START])], entry, where)
        bounds = self._unpack_groups(data, start, entry, 0, group, where, damaged)
        kept = self.index.records[record].num_samples
        labels = {name: np.array(values[:kept], dtype=np.int64) for name, values in header.labels.items()}
        byte_ranges = (ByteRange(data, bounds),)
        return RecordPrefix(header.ids[:kept], labels, group, num_bytes, byte_ranges, self.codec)

    def read_extension(self, record: int, after: int, group: int) -> Extension:
        """Read groups `after` + 1 to `group` of a record, with exactly one read, and verify them.

        If `group` equals `after`, nothing is read and the extension is empty. Damaged bytes from remote
        storage or a cache are read once more.

        Raises:
            ValueError: `group` is below `after`, or there is nothing to extend: use `read_prefix`.
            RecordError: the records lack the group; the file is cut short or damaged.
            StorageError: the storage could not deliver.
        """
        if not 1 <= after <= group:
            raise ValueError(f"groups {after + 1} to {group} do not extend a prefix")
        if group == after:
            return Extension(after, group, 0, ByteRange(b"", []))
        start = self._start(record, after)
        num_bytes = self.index.prefix_bytes(record, group) - start

        def read() -> Extension:
            where = f"record {self.path(record)}"
            data = self.read_range(record, start, start + num_bytes)
            check_length(data, num_bytes, after, group, where)
            bounds = self._unpack_groups(data, 0, self.stored(record), after, group, where)
            return Extension(after, group, num_bytes, ByteRange(data, bounds))

        return self.read_verified(record, read)

    def _start(self, record: int, after: int) -> int:
        return self.index.prefix_bytes(record, after) if after else 0

    def unpack_header(self, data: bytes, entry: RecordEntry, where: str) -> tuple[RecordHeader, int]:
        """Return the header at the start of `data`, and the offset at which it ends.

        Raises:
            RecordError: the header is damaged, or belongs to another record than `entry`.
        """
        return self._headers.unpack(data, entry, where)

    def _unpack_groups(
        self,
        data: bytes,
        start: int,
        entry: RecordEntry,
        after: int,
        group: int,
        where: str,
        damaged: set[int] | None = None,
    ) -> list[list[int]]:
        """Return the piece bounds of groups `after` + 1 to `group`; the first begins at `data[start]`.

        With `damaged`, images with a damaged piece are added to that set instead of raising an error.
        """
        offset = entry.group_ends[after - 1] if after else 0
        bounds = []
        for number in range(after + 1, group + 1):
            end = entry.group_ends[number - 1] - offset
            which = f"group {number} of {where}"
            bounds.append(unpack_group(data, start, end, entry.num_samples, which, damaged))
            start = end
        return bounds
