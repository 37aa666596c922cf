"""Scan groups of a record: packing, verification, and the result of reading them. See `format`."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from pcr_exp.errors import RecordError
from pcr_exp.images.codec import Buffer, ImageCodec

MAX_PIECE_BYTES = 2**32 - 1
_CHECKSUM = struct.Struct("<Q")
_FEW = 32
_LENGTH, _PIECE_CHECKSUM = np.dtype("<u4"), np.dtype("<u8")
REMEDY = "Copy the file again from where it was made, or delete the records' folder and encode again."


class Table(NamedTuple):
    """Offsets and checksums of a group's N pieces."""

    bounds: npt.NDArray[np.int64]
    """[N + 1] offsets in the file."""
    checksums: npt.NDArray[np.uint64]
    """[N] xxh3_64 of each piece."""


def checksum(*parts: bytes | memoryview) -> int:
    """xxh3_64 of the concatenated parts."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return int(digest.intdigest())


def pack_group(pieces: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of a group as chunks, in file order.

    Raises:
        RecordError: a piece is longer than `MAX_PIECE_BYTES`.
    """
    longest = max(map(len, pieces), default=0)
    if longest > MAX_PIECE_BYTES:
        raise RecordError(
            f"an image of {longest} bytes does not fit into a record: at most {MAX_PIECE_BYTES}."
        )
    content = b"".join(pieces)
    lengths = np.array([len(piece) for piece in pieces], dtype=_LENGTH).tobytes()
    checksums = np.array(
        [xxhash.xxh3_64_intdigest(piece) for piece in pieces], dtype=_PIECE_CHECKSUM
    ).tobytes()
    return [lengths, checksums, _CHECKSUM.pack(checksum(lengths, checksums, content)), content]


def table_bytes(num_samples: int) -> int:
    """Number of bytes before a group's pieces: their lengths and checksums, and the group's checksum."""
    return num_samples * (_LENGTH.itemsize + _PIECE_CHECKSUM.itemsize) + _CHECKSUM.size


def unpack_group(
    data: bytes, start: int, end: int, num_samples: int, where: str, damaged: set[int] | None = None
) -> list[int]:
    """Verify the group in `data[start:end]` and return the N + 1 offsets in `data` that bound its pieces.

    With `damaged`, the indices of damaged pieces are added to that set instead of raising an error.

    Raises:
        RecordError: lengths, checksum and pieces do not agree; the message names `where`.
    """
    pieces_start = start + table_bytes(num_samples)
    if not 0 <= start <= pieces_start <= end <= len(data):
        raise RecordError(
            f"{where} does not fit: its index puts it at bytes {start} to {end} of {len(data)}. {REMEDY}"
        )
    view = memoryview(data)
    table = view[start : pieces_start - _CHECKSUM.size]
    if num_samples > _FEW:
        bounds = _bounds(table, num_samples, pieces_start).tolist()
    else:
        bounds = _few(table, num_samples, pieces_start)
    (stated,) = _CHECKSUM.unpack_from(data, pieces_start - _CHECKSUM.size)
    if damaged is None and stated != checksum(table, view[pieces_start:end]):
        first = next(_damaged_pieces(view, table, bounds), None) if bounds[-1] == end else None
        told = "" if first is None else f" (first in image {first}, counted from 0 to {num_samples - 1})"
        raise RecordError(f"{where} is damaged: the checksum does not match{told}. {REMEDY}")
    _require_end(bounds[-1], end, where)
    if damaged is not None:
        damaged.update(_damaged_pieces(view, table, bounds))
    return bounds


def unpack_table(table: bytes, start: int, end: int, num_samples: int, where: str) -> Table:
    """Parse the table before the pieces of the group at bytes `start` to `end` of its file.

    The table itself is not verified. If it is damaged, the pieces located by it fail its checksums.

    Raises:
        RecordError: the table is cut short, or its lengths do not add up to `end`; the message names `where`.
    """
    wanted = table_bytes(num_samples)
    if len(table) != wanted:
        raise RecordError(f"{where} is cut short: {len(table)} of {wanted} bytes are there. {REMEDY}")
    bounds = _bounds(memoryview(table), num_samples, start + wanted)
    _require_end(int(bounds[-1]), end, where)
    return Table(bounds, _piece_checksums(table, num_samples))


def _few(table: memoryview, num_samples: int, pieces_start: int) -> list[int]:
    """Return the same as `_bounds`; faster for few pieces, where creating an array dominates."""
    return list(accumulate(struct.unpack_from(f"<{num_samples}I", table), initial=pieces_start))


def _bounds(table: bytes | memoryview, num_samples: int, pieces_start: int) -> npt.NDArray[np.int64]:
    bounds = np.empty(num_samples + 1, dtype=np.int64)
    bounds[0] = pieces_start
    np.cumsum(np.frombuffer(table, dtype=_LENGTH, count=num_samples), out=bounds[1:])
    bounds[1:] += pieces_start
    return bounds


def _piece_checksums(table: bytes | memoryview, num_samples: int) -> npt.NDArray[np.uint64]:
    return np.frombuffer(table, _PIECE_CHECKSUM, num_samples, offset=num_samples * _LENGTH.itemsize)


def _damaged_pieces(view: memoryview, table: memoryview, bounds: list[int]) -> Iterator[int]:
    """Yield the indices of the pieces that do not match their checksums."""
    stated = _piece_checksums(table, len(bounds) - 1).tolist()
    for i, (start, end) in enumerate(pairwise(bounds)):
        if xxhash.xxh3_64_intdigest(view[start:end]) != stated[i]:
            yield i


def _require_end(found: int, end: int, where: str) -> None:
    if found != end:
        raise RecordError(f"{where} is damaged: its pieces end at byte {found}, wanted {end}. {REMEDY}")


def check_length(data: bytes, num_bytes: int, after: int, group: int, where: str) -> None:
    """Raise RecordError unless `data` has `num_bytes` bytes, the size of groups `after` + 1 to `group`."""
    if len(data) != num_bytes:
        raise RecordError(
            f"{where} is cut short: groups {after + 1} to {group} take {num_bytes} bytes, {len(data)} are "
            f"there. {REMEDY}"
        )


class ByteRange(NamedTuple):
    """Bytes of one read and, for every group in it, the N + 1 offsets in `data` that bound its pieces."""

    data: bytes
    bounds: list[list[int]]


@dataclass(frozen=True, slots=True)
class Extension:
    """Groups `after` + 1 to `group` of a record, which continue a prefix of `after` groups."""

    after: int
    group: int
    num_bytes: int
    """Number of bytes read for the extension."""
    byte_range: ByteRange


@dataclass(frozen=True, slots=True)
class RecordPrefix:
    """All N samples of a record, at the fidelity of one scan group. `labels` are int64 of shape [N]."""

    ids: list[str]
    labels: dict[str, npt.NDArray[np.int64]]
    group: int
    num_bytes: int
    """Number of bytes read for the prefix."""
    _byte_ranges: tuple[ByteRange, ...]
    _codec: ImageCodec
    replaced: Mapping[int, int] = field(default_factory=dict)
    """Index of each damaged sample -> index of the sample that replaces it."""
    fields: Sequence[Mapping[str, Buffer]] = ()
    """Each sample's fields, by name; empty if none were requested."""

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, i: int, group: int | None = None) -> Sequence[Buffer]:
        """Return buffers that concatenate to sample i as a file; they are views of the bytes read, no copies.

        With `group`, only the pieces up to that group are used, as if a shorter prefix had been read.
        """
        if not 0 <= i < len(self.ids):
            raise IndexError(f"sample {i} is out of range for a record of {len(self.ids)} samples")
        i = self.replaced.get(i, i)
        pieces = [
            view[bounds[i] : bounds[i + 1]]
            for data, of_groups in self._byte_ranges
            for view in (memoryview(data),)
            for bounds in of_groups
        ]
        return self._codec.join(pieces[:group])

    def beside(self, i: int) -> Mapping[str, Buffer]:
        """Return the fields of sample i; a damaged sample has those of its replacement."""
        return self.fields[self.replaced.get(i, i)] if self.fields else {}

    def encoded(self, i: int, group: int | None = None) -> bytes:
        """Return sample i as a file, with all groups read or up to `group`; a baseline as the original."""
        return b"".join(self.parts(i, group))

    def bounds(self, group: int) -> npt.NDArray[np.int64]:
        """[N + 1] offsets in the file that bound the pieces of a group of the first read (from offset 0)."""
        return np.array(self._byte_ranges[0].bounds[group - 1], dtype=np.int64)

    def piece(self, i: int, group: int) -> memoryview:
        """Return the piece that a group of the first read adds to sample i."""
        first, bounds = self._byte_ranges[0].data, self._byte_ranges[0].bounds[group - 1]
        return memoryview(first)[bounds[i] : bounds[i + 1]]

    def extended(self, more: Extension) -> RecordPrefix:
        """Return the samples with the groups of `more` added. Shares memory with this prefix, left unchanged.

        Raises:
            ValueError: `more` does not begin where this prefix ends.
        """
        if more.after != self.group:
            raise ValueError(
                f"groups from {more.after + 1} on do not continue a prefix of {self.group} groups"
            )
        return replace(
            self,
            group=more.group,
            num_bytes=self.num_bytes + more.num_bytes,
            _byte_ranges=(*self._byte_ranges, more.byte_range),
        )
