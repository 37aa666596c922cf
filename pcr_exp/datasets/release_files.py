"""Files of the PCR paper's public code: an SQLite index, and records of protobuf scan groups.

    PCR.db      table unnamed(key, value); under each record's name, a pickled list of lengths in bytes:
                [metadata, scan group 1, ..., scan group G]
    PCR_0.pcr   metadata | scan group 1 | ... | scan group G, without gaps, magic or checksum

Metadata is a protobuf message `MetadataRecord` (labels: field 1, varints; levels: field 2). A scan group is a
`ScanGroup` (field 1, repeated bytes: a piece of each image, in label order). The first piece of an image
begins with its JPEG header. No piece contains the end marker. Grey images have empty pieces at the end.

Unpickling could execute arbitrary code, so nothing is unpickled: lists of integers are read by opcode, and
all other opcodes are refused. Files are opened read-only.
"""

from __future__ import annotations

import pickletools
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import DatasetError

MAX_GROUPS = 64
MAX_LABEL = 10**6
"""Above any number of classes. A damaged label could otherwise require memory for 2**64 classes."""

_EOI = b"\xff\xd9"
_SETTINGS_PREFIX = "m_"
_INTEGERS = {"BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG"}
_NEW_LIST = {"EMPTY_LIST", "LIST"}
_FILLED = {"PROTO", "FRAME", "MARK", "APPEND", "APPENDS", "STOP"}
_MEMO = {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}
_LABEL_TAG, _LEVELS_TAG, _PIECE_TAG = 0x08, 0x10, 0x0A
"""Protobuf tags (field number << 3 | wire type); wire type 0 is a varint, 2 is a length and bytes."""


def read_index(path: Path) -> dict[str, list[int]]:
    """Return the part lengths of each record by file name, ordered by the numbers in their names.

    Raises:
        DatasetError: this is not such an index, or it contains something that no index needs.
    """
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"  # else SQLite may write next to it
    try:
        with closing(sqlite3.connect(address, uri=True)) as index:
            rows = index.execute("SELECT key, value FROM unnamed").fetchall()
    except sqlite3.Error as error:
        raise DatasetError(
            f"{path} is not the SQLite index of a PCR release: {error}. Wanted a table `unnamed` with a row "
            "for each record."
        ) from error
    lengths = {}
    for key, value in rows:
        if isinstance(key, str) and key.startswith(_SETTINGS_PREFIX):
            continue
        if not isinstance(key, str) or Path(key).name != key or key in ("", ".."):
            raise DatasetError(f"{path} lists {key!r}; wanted the name of a record in the same folder.")
        lengths[key] = _lengths(value, f"{path}, {key}")
    if not lengths:
        raise DatasetError(f"{path} lists no record.")
    return dict(sorted(lengths.items(), key=lambda item: (len(item[0]), item[0])))


def _lengths(value: object, where: str) -> list[int]:
    if not isinstance(value, bytes):
        raise DatasetError(f"{where}: wanted a pickled list of lengths, found {type(value).__name__}.")
    found: list[Any] = []
    num_lists = 0
    try:
        for opcode, argument, _ in pickletools.genops(value):
            num_lists += opcode.name in _NEW_LIST
            if opcode.name in _INTEGERS:
                found.append(argument)
            elif opcode.name not in _NEW_LIST | _FILLED | _MEMO:
                raise DatasetError(
                    f"{where}: its pickled value has the opcode {opcode.name}, which a list of lengths does "
                    "not need, so it is not read. Take the index from the release's own converter."
                )
    except (ValueError, IndexError) as error:
        raise DatasetError(f"{where}: its pickled value is damaged ({error}).") from error
    is_number = all(type(n) is int and n >= 0 for n in found)
    if num_lists != 1 or not is_number or not 2 <= len(found) <= 1 + MAX_GROUPS:
        raise DatasetError(
            f"{where}: wanted one list, the lengths of the metadata and of 1 to {MAX_GROUPS} scan groups; "
            f"found {found} in {num_lists} lists."
        )
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseRecord:
    """One record, and the positions of its images' pieces."""

    path: Path
    labels: list[int]
    offsets: npt.NDArray[np.int64]
    """int64 [num_groups, num_images], from the start of the file."""
    lengths: npt.NDArray[np.int64]
    """int64 [num_groups, num_images], bytes."""


@dataclass(frozen=True, slots=True)
class ReleaseImage:
    """One image of a record; implements `pcr_exp.datasets.sample.PackedImage`."""

    record: ReleaseRecord
    position: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the complete file made of the pieces."""
        return int(self.record.lengths[:, self.position].sum()) + len(_EOI)

    def read_bytes(self) -> bytes:
        """Return the progressive JPEG: all pieces, and the end marker that the release leaves out."""
        offsets = self.record.offsets[:, self.position].tolist()
        pieces = []
        with self.record.path.open("rb", buffering=0) as file:
            for offset, length in zip(offsets, self._lengths(), strict=True):
                file.seek(offset)
                pieces.append(file.read(length))
        return b"".join([*pieces, _EOI])

    def pieces(self, jpeg: bytes) -> list[bytes]:
        """Split the result of `read_bytes` as in the release: a piece per scan group, without end marker."""
        ends = np.cumsum(self._lengths()).tolist()
        return [jpeg[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _lengths(self) -> list[int]:
        return self.record.lengths[:, self.position].tolist()


def read_record(path: Path, part_lengths: list[int]) -> ReleaseRecord:
    """Find the images of a record. Only one scan group at a time is held in memory.

    Args:
        path: The record.
        part_lengths: Bytes of its metadata and of each scan group, from the index.

    Raises:
        DatasetError: it is damaged, or does not match the index.
        OSError: it cannot be read.
    """
    num_bytes = path.stat().st_size
    if num_bytes != sum(part_lengths):
        raise DatasetError(
            f"{path} has {num_bytes} bytes; the index says {sum(part_lengths)}. Copy the record again."
        )
    pieces_of_groups = []
    with path.open("rb") as file:
        labels = _read_labels(file.read(part_lengths[0]), path)
        for group, length in enumerate(part_lengths[1:], start=1):
            start = file.tell()
            pieces = _read_pieces(file.read(length), f"{path}, scan group {group}")
            if len(pieces) != len(labels):
                raise DatasetError(
                    f"{path}, scan group {group}: {len(pieces)} pieces for {len(labels)} labels."
                )
            found = np.array(pieces, dtype=np.int64).reshape(-1, 2)
            pieces_of_groups.append(found + np.array([start, 0]))
    table = np.stack(pieces_of_groups)
    return ReleaseRecord(path, labels, table[:, :, 0], table[:, :, 1])


def _read_labels(metadata: bytes, path: Path) -> list[int]:
    labels, position = [], 0
    while position < len(metadata):
        tag, position = _varint(metadata, position, f"{path}, metadata")
        value, position = _varint(metadata, position, f"{path}, metadata")
        if tag not in (_LABEL_TAG, _LEVELS_TAG):
            raise DatasetError(f"{path}, metadata: the field tag {tag:#x} is not one of the release's.")
        if tag == _LABEL_TAG:
            labels.append(value)
    if any(label > MAX_LABEL for label in labels):
        raise DatasetError(f"{path}: the label {max(labels)} is more than {MAX_LABEL}.")
    return labels


def _read_pieces(group: bytes, where: str) -> list[tuple[int, int]]:
    """Return (start, length) of each piece in a scan group."""
    pieces, position = [], 0
    while position < len(group):
        if group[position] != _PIECE_TAG:
            raise DatasetError(f"{where}: wanted a piece at byte {position}, found tag {group[position]:#x}.")
        length, position = _varint(group, position + 1, where)
        if length > len(group) - position:
            raise DatasetError(f"{where}: the piece at byte {position} is longer than the rest of the group.")
        pieces.append((position, length))
        position += length
    return pieces


def _varint(data: bytes, position: int, where: str) -> tuple[int, int]:
    """Return a protobuf varint, seven bits per byte from the lowest, and the position after it."""
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise DatasetError(f"{where}: a number at byte {position} does not end.")
