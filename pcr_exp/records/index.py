"""`index.json`: what a split in one encoding holds, and how many bytes of each record hold which groups."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import xxhash

from pcr_exp.errors import PcrExpError, RecordError

INDEX_FILE = "index.json"
FORMAT = "pcr-exp records"
VERSION = 1
_REMEDY = "Copy it again from where it was made, or delete the records' folder and encode again."


class RangeReader(Protocol):
    """Where bytes come from. Paths are relative to the storage's root."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on; fewer at the end of the file."""
        ...

    def size(self, path: str) -> int:
        """Bytes in the file."""
        ...


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One record. `group_ends[g - 1]` is the offset in the file at which group g ends."""

    file: str
    num_samples: int
    group_ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """A split in one encoding. `classes` has the class names of every label; class index = position."""

    dataset: str
    split: str
    encoding: str
    fingerprint: str
    num_groups: int
    classes: dict[str, list[str]]
    records: list[RecordEntry]
    images: str = ""
    """Key of the split's images: what the pictures are, wherever and however they are stored."""
    scans: str = ""
    """Id of the script that cut them into scans: as in `config.records.SCANS`."""

    @property
    def num_samples(self) -> int:
        return sum(record.num_samples for record in self.records)

    def prefix_bytes(self, record: int, group: int) -> int:
        """Bytes from the start of a record to the end of its group `group` (1-based).

        Raises:
            RecordError: there is no such group.
        """
        self.check_group(group)
        return self.records[record].group_ends[group - 1]

    def epoch_bytes(self, group: int) -> int:
        """Bytes of one pass over all samples at a group."""
        return sum(self.prefix_bytes(record, group) for record in range(len(self.records)))

    def mean_prefix_bytes(self, group: int) -> float:
        """Bytes per sample at a group, each record's header included."""
        return self.epoch_bytes(group) / self.num_samples

    def check_group(self, group: int) -> None:
        """Raise RecordError unless the records have this group."""
        if not 1 <= group <= self.num_groups:
            have = "group 1 only" if self.num_groups == 1 else f"groups 1 to {self.num_groups}"
            raise RecordError(
                f"scan group {group} was asked for, but the {self.encoding} records of "
                f"{self.dataset}/{self.split} have {have}. Choose scan.group from these."
            )


def dump_index(index: RecordIndex) -> bytes:
    """The bytes of `index.json`: equal indexes give equal bytes."""
    content = {
        "dataset": index.dataset,
        "split": index.split,
        "encoding": index.encoding,
        "images": index.images,
        "fingerprint": index.fingerprint,
        "scans": index.scans,
        "num_groups": index.num_groups,
        "classes": index.classes,
        "records": [asdict(record) for record in index.records],
    }
    sealed = {"format": FORMAT, "version": VERSION, "checksum": _seal(content), **content}
    return (json.dumps(sealed, indent=1) + "\n").encode()


def parse_index(data: bytes, where: str) -> RecordIndex:
    """Read what `dump_index` wrote; `where` names the file in errors.

    Raises:
        RecordError: not an index, of another format version, or damaged.
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise RecordError(f"{where} is damaged, it is not JSON ({error}). {_REMEDY}") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise RecordError(f'{where} is not an index of records: "format" is not "{FORMAT}". {_REMEDY}')
    version = content.pop("version", None)
    if version != VERSION:
        raise RecordError(
            f"{where} has format version {version}, this program reads version {VERSION}. "
            "Use the pcr-exp that wrote it, or delete the records' folder and encode again."
        )
    if content.pop("checksum", None) != _seal(content):
        raise RecordError(f"{where} is damaged or was edited: its checksum does not match. {_REMEDY}")
    try:
        return _build(content)
    except (KeyError, TypeError) as error:
        raise RecordError(f"{where} lacks something that an index has ({error}). {_REMEDY}") from error


def read_index(storage: RangeReader, folder: str) -> RecordIndex:
    """The index of the records in `folder`, read through the storage.

    Raises:
        RecordError: there is none, or it cannot be read or used.
    """
    path = f"{folder}/{INDEX_FILE}" if folder else INDEX_FILE
    try:
        data = storage.read(path, 0, storage.size(path))
    except (PcrExpError, OSError) as error:
        raise RecordError(
            f"no records can be opened at {path}: {error} "
            "Make them with `python -m experiments.prepare` and the same dataset and records.root."
        ) from error
    return parse_index(data, path)


def _build(content: Mapping[str, Any]) -> RecordIndex:
    records = [
        RecordEntry(record["file"], record["num_samples"], tuple(record["group_ends"]))
        for record in content["records"]
    ]
    return RecordIndex(
        dataset=content["dataset"],
        split=content["split"],
        encoding=content["encoding"],
        fingerprint=content["fingerprint"],
        num_groups=content["num_groups"],
        classes=content["classes"],
        records=records,
        images=content["images"],
        scans=content["scans"],
    )


def _seal(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return str(xxhash.xxh3_64_hexdigest(canonical.encode()))
