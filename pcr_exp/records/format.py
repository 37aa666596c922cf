"""One record and its bytes.

    magic (8) | format version u32 | header length u32 | header checksum u64 | header JSON
    group 1:  piece lengths, N x u32 | checksum u64 | the pieces of all N samples
    group 2:  ...

Numbers are little-endian. A checksum is xxh3_64: the header's of all header bytes but itself, a group's of
its lengths and pieces. Every group can be verified by itself, so a prefix of the file can.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import xxhash

from pcr_exp.errors import RecordError

MAGIC = b"\x89PCR\r\n\x1a\n"
"""As in PNG: the high bit and the line ends show a file that was mangled as text."""
VERSION = 1
_PREAMBLE = struct.Struct("<8sII")
_CHECKSUM = struct.Struct("<Q")
_HEADER_START = _PREAMBLE.size + _CHECKSUM.size
_LENGTH = np.dtype("<u4")
_REMEDY = "Copy the file again from where it was made, or delete the records' folder and encode again."


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """What a record says of itself. `ids` and each list of `labels` have one entry per sample."""

    dataset: str
    split: str
    encoding: str
    fingerprint: str
    num_groups: int
    ids: list[str]
    labels: dict[str, list[int]]
    images: str = ""
    """Key of the split's images: what the pictures are, wherever and however they are stored."""
    scans: str = ""
    """Id of the script that cut them into scans: as in `config.records.SCANS`."""

    @property
    def num_samples(self) -> int:
        return len(self.ids)


class PackedRecord(NamedTuple):
    """A record's bytes in order, and the offset in the file at which every group ends."""

    chunks: list[bytes]
    group_ends: tuple[int, ...]


def pack_record(header: RecordHeader, samples: Sequence[Sequence[bytes]]) -> PackedRecord:
    """Lay out a record; `samples[i][g]` is the piece of sample i for group g + 1."""
    fields = asdict(header) | {"num_samples": header.num_samples}
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    preamble = _PREAMBLE.pack(MAGIC, VERSION, len(text))
    chunks = [preamble, _CHECKSUM.pack(_checksum(preamble, text)), text]
    end = _HEADER_START + len(text)
    group_ends = []
    for group in range(header.num_groups):
        pieces = [sample[group] for sample in samples]
        lengths = np.array([len(piece) for piece in pieces], dtype=_LENGTH).tobytes()
        content = b"".join(pieces)
        chunks += [lengths, _CHECKSUM.pack(_checksum(lengths, content)), content]
        end += len(lengths) + _CHECKSUM.size + len(content)
        group_ends.append(end)
    return PackedRecord(chunks, tuple(group_ends))


def unpack_header(data: bytes, where: str) -> tuple[RecordHeader, int]:
    """The header of a record or prefix, and the offset at which group 1 begins.

    Raises:
        RecordError: not a record, of another format version, cut short or damaged; the message names `where`.
    """
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise RecordError(f"{where} is not a PCR record: its first bytes are others. {_REMEDY}")
    if len(data) < _HEADER_START:
        raise RecordError(f"{where} is cut short in its header, after {len(data)} bytes. {_REMEDY}")
    _, version, length = _PREAMBLE.unpack_from(data)
    if version != VERSION:
        raise RecordError(
            f"{where} has format version {version}, this program reads version {VERSION}. "
            "Use the pcr-exp that wrote it, or delete the records' folder and encode again."
        )
    end = _HEADER_START + length
    if len(data) < end:
        raise RecordError(
            f"{where} is cut short or damaged in its header: {len(data)} of {end} bytes are there. {_REMEDY}"
        )
    text = data[_HEADER_START:end]
    (stated,) = _CHECKSUM.unpack_from(data, _PREAMBLE.size)
    if stated != _checksum(data[: _PREAMBLE.size], text):
        raise RecordError(f"{where} is damaged in its header: the checksum does not match. {_REMEDY}")
    try:
        fields = json.loads(text)
        num_samples = fields.pop("num_samples")
        header = RecordHeader(**fields)
        labels_fit = all(len(values) == num_samples for values in header.labels.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{where} has a header that cannot be understood ({error!r}). {_REMEDY}") from error
    if header.num_samples != num_samples or not labels_fit:
        raise RecordError(f"{where} has a header whose ids and labels are not {num_samples} each. {_REMEDY}")
    return header, end


def unpack_group(data: bytes, start: int, end: int, num_samples: int, where: str) -> list[int]:
    """Verify the group in `data[start:end]`; the N + 1 offsets in `data` that bound its pieces.

    Raises:
        RecordError: lengths, checksum or pieces do not agree; the message names `where`.
    """
    pieces_start = start + num_samples * _LENGTH.itemsize + _CHECKSUM.size
    if not pieces_start <= end <= len(data):
        raise RecordError(
            f"{where} does not fit: its index puts it at bytes {start} to {end} of {len(data)}. {_REMEDY}"
        )
    view = memoryview(data)
    lengths = view[start : pieces_start - _CHECKSUM.size]
    (stated,) = _CHECKSUM.unpack_from(data, pieces_start - _CHECKSUM.size)
    if stated != _checksum(lengths, view[pieces_start:end]):
        raise RecordError(f"{where} is damaged: the checksum does not match. {_REMEDY}")
    bounds = np.empty(num_samples + 1, dtype=np.int64)
    bounds[0] = pieces_start
    np.cumsum(np.frombuffer(lengths, dtype=_LENGTH), out=bounds[1:])
    bounds[1:] += pieces_start
    if bounds[-1] != end:
        raise RecordError(f"{where} is damaged: its pieces end at byte {bounds[-1]}, wanted {end}. {_REMEDY}")
    return bounds.tolist()


def _checksum(*parts: bytes | memoryview) -> int:
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return int(digest.intdigest())
