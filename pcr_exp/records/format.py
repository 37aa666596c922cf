"""Byte layout of a record. With that of `index.py`, this page is all that another reader needs.

    magic (8) | format version u32 | header length u32 | header checksum u64 | header JSON
    group 1:  lengths, N x u32 | checksums of the pieces, N x u64 | checksum of the group u64 | N pieces
    group 2:  ...
    group G

Numbers are little-endian without padding. There are N samples and G groups. Piece i of group g is what scan
group g adds to sample i, and may be empty. In `pcr` records, the pieces of groups 1 to g followed by the two
bytes FF D9 are a JPEG file of sample i. `baseline` records have one group, whose pieces are whole files.
Checksums are xxh3_64. The header checksum covers all header bytes but itself, a piece checksum the piece, and
a group checksum the group's lengths, piece checksums and pieces. Groups 1 to g are one read from offset 0,
verified by one checksum per group. A piece is located by the lengths before it and verified by its checksum.

The index states where the header (`header_bytes`) and every group (`group_ends`) end, counted from the start
of the file. A group has 12 N + 8 bytes before its N pieces.

The header is a JSON object in UTF-8: `dataset`, `split`, `encoding` (`pcr`, `baseline`), `images` (key that
identifies the images), `fingerprint` (key of these records), `scans` (id of the script that cut the images
into scans: `libjpeg-default`, `none`, or `jpeg` and for each scan `_` with its components and Ss, Se, Ah and
Al of ITU-T T.81: `jpeg_012.0.0.0.0_0.1.9.0.0_...`), `num_groups`, `num_samples`, `ids` (N strings), `labels`
(by name, N class indexes) and `minor`.

Versions and compatibility
  * `version` applies to records and their index. It rises when older readers could not read the new bytes
    correctly. They then reject the version before they read anything else.
  * `minor` rises when header or index gain a field that readers may ignore. A reader skips unknown fields if
    `minor` is above its own, and otherwise treats them as damage.
  * This program writes the newest version and reads every version since 0.2.0, the first release. Each has a
    test with bytes that it wrote. Version 1, which no release wrote, is rejected.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.errors import RecordError
from pcr_exp.records import strict_json as check
from pcr_exp.records.groups import REMEDY, checksum, pack_group
from pcr_exp.records.strict_json import Check, UnfitError, parse_json

MAGIC = b"\x89PCR\r\n\x1a\n"
"""As in PNG, the high bit and the line ends reveal a file that was mangled as text."""
VERSION = 2
MINOR = 0
MAX_SAMPLES = 2**20
"""Maximum samples in a record. This and the next limit are far above real use: a higher number is damage."""
MAX_GROUPS = 64
MAX_HEADER_BYTES = 2**28

_PREAMBLE = struct.Struct("<8sII")
_CHECKSUM = struct.Struct("<Q")
HEADER_START = _PREAMBLE.size + _CHECKSUM.size
MIN_HEADER_BYTES = HEADER_START + len("{}")

WHAT_THEY_ARE: dict[str, Check] = {
    "dataset": check.text,
    "split": check.text,
    "encoding": check.one_of(*SCANS),
    "fingerprint": check.hex_key,
    "images": check.hex_key,
    "scans": check.word,
    "minor": check.whole(0, 2**31),
}
"""The fields that header and index share."""
_CONTENTS: dict[str, Check] = {
    "num_groups": check.whole(1, MAX_GROUPS),
    "num_samples": check.whole(1, MAX_SAMPLES),
    "ids": check.texts,
    "labels": check.mapping_of(check.wholes(0, 2**31)),
}
_HEADER = {later: check.fields(WHAT_THEY_ARE | _CONTENTS, more=later) for later in (False, True)}
"""The check of a header, by whether unknown fields are allowed."""


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The header of a record. `ids` and each list of `labels` have one entry per sample."""

    dataset: str
    split: str
    encoding: str
    fingerprint: str
    num_groups: int
    ids: list[str]
    labels: dict[str, list[int]]
    images: str = ""
    """Key that identifies the split's images, wherever and however they are stored."""
    scans: str = "none"
    """Id of the script that cut the images into scans, as in `config.records.SCANS`."""

    @property
    def num_samples(self) -> int:
        return len(self.ids)


class PackedRecord(NamedTuple):
    """A record's bytes in order, and the offsets in the file at which its header and every group end."""

    chunks: list[bytes]
    header_bytes: int
    group_ends: tuple[int, ...]


def pack_record(header: RecordHeader, samples: Sequence[Sequence[bytes]]) -> PackedRecord:
    """Lay out a record; `samples[i][g]` is the piece of sample i for group g + 1.

    Raises:
        RecordError: more samples, or longer ids, than a record can hold.
    """
    content = asdict(header) | {"num_samples": header.num_samples, "minor": MINOR}
    encoded = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    if header.num_samples > MAX_SAMPLES or len(encoded) > MAX_HEADER_BYTES:
        raise RecordError(
            f"{header.num_samples} samples with a header of {len(encoded)} bytes do not fit into one record: "
            f"at most {MAX_SAMPLES} samples and {MAX_HEADER_BYTES} bytes. Lower dataset.images_per_record."
        )
    start = preamble(len(encoded))
    chunks = [start, _CHECKSUM.pack(checksum(start, encoded)), encoded]
    end = header_bytes = HEADER_START + len(encoded)
    group_ends = []
    for group in range(header.num_groups):
        packed = pack_group([sample[group] for sample in samples])
        chunks += packed
        end += sum(map(len, packed))
        group_ends.append(end)
    return PackedRecord(chunks, header_bytes, tuple(group_ends))


def preamble(num_bytes: int) -> bytes:
    """Magic, version and header length of a record whose header JSON has `num_bytes` bytes."""
    return _PREAMBLE.pack(MAGIC, VERSION, num_bytes)


def checksum_matches(data: bytes) -> bool:
    """Return whether the checksum of a header matches; `data` must be exactly the header."""
    (stated,) = _CHECKSUM.unpack_from(data, _PREAMBLE.size)
    return bool(stated == checksum(data[: _PREAMBLE.size], memoryview(data)[HEADER_START:]))


def stated_header_bytes(start: bytes) -> int:
    """Return the header's end as stated in a record's first `HEADER_START` bytes; `len(start)` if fewer."""
    return HEADER_START + _PREAMBLE.unpack_from(start)[2] if len(start) == HEADER_START else len(start)


def unpack_header(data: bytes, where: str) -> tuple[RecordHeader, int]:
    """Parse and verify the header of a record or prefix; also return the offset at which group 1 begins.

    Raises:
        RecordError: not a record, of another format version, cut short or damaged; the message names `where`.
    """
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise RecordError(f"{where} is not a PCR record: its first bytes are not those of a record. {REMEDY}")
    if len(data) < HEADER_START:
        raise RecordError(f"{where} is cut short in its header, after {len(data)} bytes. {REMEDY}")
    _, version, length = _PREAMBLE.unpack_from(data)
    refuse_version(version, where)
    end = HEADER_START + length
    if len(data) < end:
        raise RecordError(
            f"{where} is cut short or damaged in its header: {len(data)} of {end} bytes are there. {REMEDY}"
        )
    encoded = data[HEADER_START:end]
    if not checksum_matches(data[:end]):
        raise RecordError(f"{where} is damaged in its header: the checksum does not match. {REMEDY}")
    try:
        return _build(encoded), end
    except UnfitError as error:
        raise RecordError(f"{where} has a header that cannot be used: {error}. {REMEDY}") from error


def refuse_version(version: Any, where: str) -> None:
    """Raise RecordError unless this program reads the format version."""
    if type(version) is not int or version != VERSION:
        raise RecordError(
            f"{where} has format version {version!r:.20}, this program reads version {VERSION}. "
            "Use the pcr-exp that wrote it, or a newer one, or delete the records' folder and encode again."
        )


def _build(encoded: bytes) -> RecordHeader:
    content = parse_json(encoded, MAX_HEADER_BYTES)
    _HEADER[isinstance(content, dict) and is_later(content)](content, "")
    num_samples = content["num_samples"]
    for name, values in {"ids": content["ids"], **content["labels"]}.items():
        if len(values) != num_samples:
            raise UnfitError(f"{name} has {len(values)} entries, wanted {num_samples} (num_samples)")
    return RecordHeader(**{field.name: content[field.name] for field in fields(RecordHeader)})


def is_later(content: dict[str, Any], known: int = MINOR) -> bool:
    """Return whether unknown fields are allowed, because `minor` is above the `known` one."""
    minor = content.get("minor")
    return type(minor) is int and minor > known
