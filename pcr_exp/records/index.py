"""`index.json`: the contents of a split in one encoding, and where the groups of each record end.

    {"format": "pcr-exp records", "version": 2, "checksum": ..., "minor": 0,
     "dataset", "split", "encoding", "images", "fingerprint", "scans": as in the records' headers,
     "num_groups": G, "classes": {label: [class names]},
     "records": [{"file", "num_samples", "header_bytes", "group_ends": [G offsets]}, ...]}

The checksum is the xxh3_64, in hexadecimal, of the JSON of everything except format, version and checksum:
keys sorted, no white space, ASCII. A split without images has no records. An entry has its own `fingerprint`
if it was made by another encode than its index. With `minor` 1, the index and every entry also have `fields`.
For versions and compatibility, see `format`.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import xxhash

from pcr_exp.errors import RecordError
from pcr_exp.records import format as layout
from pcr_exp.records import strict_json as check
from pcr_exp.records.groups import table_bytes
from pcr_exp.records.strict_json import Check, UnfitError, parse_json

TABLE_FILE = "index.table"


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One record. `group_ends[g - 1]` is the offset in the file at which group g ends."""

    file: str
    num_samples: int
    group_ends: tuple[int, ...]
    header_bytes: int
    """The offset at which the header ends."""
    fingerprint: str | None = None
    """Fingerprint of the encode that made the record, if it differs from the index's."""
    fields: RecordEntry | None = None
    """The record's file of fields, if the index has fields; its group g is the g-th field by name."""

    @property
    def files(self) -> tuple[RecordEntry, ...]:
        """The record's own file and, if there is one, its file of fields."""
        return (self,) if self.fields is None else (self, self.fields)


def row_type(file_bytes: int, num_groups: int, fingerprint_bytes: int) -> np.dtype[Any]:
    """Return the dtype of a row of `index.table`, with strings of these sizes in bytes."""
    return np.dtype(
        [
            ("file", f"S{file_bytes}"),
            ("num_samples", "<u4"),
            ("header_bytes", "<u8"),
            ("group_ends", "<u8", (num_groups,)),
            ("fingerprint", f"S{fingerprint_bytes}"),
        ]
    )


class EntryTable(Sequence[RecordEntry]):
    """The entries of an index, stored as table rows; each entry is created on access."""

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        """`rows` has shape [number of records] and the dtype `row_type`."""
        self.rows = rows
        # One read of a record accesses its entry several times.
        self._entry = lru_cache(maxsize=1024)(self._make)

    def __reduce__(self) -> tuple[type[EntryTable], tuple[npt.NDArray[Any]]]:
        return EntryTable, (self.rows,)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, record: int) -> RecordEntry: ...
    @overload
    def __getitem__(self, record: slice) -> list[RecordEntry]: ...
    def __getitem__(self, record: int | slice) -> RecordEntry | list[RecordEntry]:
        """Return the entry of a record, or the entries of a slice.

        Raises:
            IndexError: there is no such record.
            RecordError: its row has an invalid file name or fingerprint.
        """
        if isinstance(record, slice):
            return [self[number] for number in range(*record.indices(len(self)))]
        return self._entry(record)

    def _make(self, record: int) -> RecordEntry:
        file, num_samples, header_bytes, group_ends, fingerprint = self.rows[record].item()
        name, key = file.decode("ascii", "replace"), fingerprint.decode("ascii", "replace") or None
        try:
            check.word(name, "file")
            if key is not None:
                check.hex_key(key, "fingerprint")
        except UnfitError as error:
            raise RecordError(
                f"{TABLE_FILE} cannot be used, at record {record}: {error}. Remove it: index.json "
                "holds the same."
            ) from error
        return RecordEntry(name, num_samples, tuple(map(int, group_ends)), header_bytes, key)

    def __iter__(self) -> Iterator[RecordEntry]:
        return map(self._make, range(len(self)))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[number of records] number of samples in each record."""
        return self.rows["num_samples"].astype(np.int64)

    def ends(self, group: int) -> npt.NDArray[np.int64]:
        """[number of records] offset at which group `group` (1-based) of each record ends."""
        return self.rows["group_ends"][:, group - 1].astype(np.int64)


INDEX_FILE = "index.json"

FORMAT = "pcr-exp records"

MAX_INDEX_BYTES = 2**28

MAX_RECORD_BYTES = 2**48

MINOR_WITH_FIELDS = 1
"""`minor` of an index with fields; an index without fields is written as in earlier versions."""

_REMEDY = "Copy it again from where it was made, or delete the records' folder and encode again."


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """A split in one encoding. `classes` lists the class names of every label, by class index."""

    dataset: str
    split: str
    encoding: str
    fingerprint: str
    num_groups: int
    classes: Mapping[str, Sequence[str]]
    records: Sequence[RecordEntry]
    """A list or, if read from a table, an `EntryTable`, which creates entries on access."""
    images: str = ""
    """Key that identifies the split's images, wherever and however they are stored."""
    scans: str = "none"
    """Id of the script that cut the images into scans, as in `config.records.SCANS`."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Name -> kind of each field stored with a sample's image."""

    @property
    def num_samples(self) -> int:
        return int(self.sizes.sum())

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[number of records] number of samples in each record."""
        if isinstance(self.records, EntryTable):
            return self.records.sizes
        return np.array([record.num_samples for record in self.records], dtype=np.int64)

    def first_samples(self, num: int) -> RecordIndex:
        """Return the index of the first `num` samples; its last record may list only some of its samples."""
        records = []
        for record in self.records:
            if num <= 0:
                break
            records.append(replace(record, num_samples=min(num, record.num_samples)))
            num -= record.num_samples
        return replace(self, records=records)

    def prefix_bytes(self, record: int, group: int) -> int:
        """Bytes from the start of a record to the end of its group `group` (1-based).

        Raises:
            RecordError: there is no such group.
        """
        self.check_group(group)
        return self.records[record].group_ends[group - 1]

    def prefixes_bytes(self, group: int) -> npt.NDArray[np.int64]:
        """[number of records] `prefix_bytes` of each record. Raises RecordError as `prefix_bytes` does."""
        self.check_group(group)
        if isinstance(self.records, EntryTable):
            return self.records.ends(group)
        return np.array([record.group_ends[group - 1] for record in self.records], dtype=np.int64)

    def epoch_bytes(self, group: int) -> int:
        """Bytes read by one pass over all samples at a scan group."""
        return int(self.prefixes_bytes(group).sum())

    def mean_prefix_bytes(self, group: int) -> float:
        """Mean bytes per sample at a scan group, including the headers of records."""
        return self.epoch_bytes(group) / max(1, self.num_samples)

    def check_group(self, group: int) -> None:
        """Raise RecordError unless the records have this group."""
        if not 1 <= group <= self.num_groups:
            have = "group 1 only" if self.num_groups == 1 else f"groups 1 to {self.num_groups}"
            raise RecordError(
                f"scan group {group} was asked for, but the {self.encoding} records of "
                f"{self.dataset}/{self.split} have {have}. Choose one of these."
            )


def dump_index(index: RecordIndex) -> bytes:
    """Return the bytes of `index.json`; equal indexes give equal bytes.

    Raises:
        RecordError: there would be more than `MAX_INDEX_BYTES`, the most that are read.
    """
    content = {
        "minor": MINOR_WITH_FIELDS if index.fields else layout.MINOR,
        "dataset": index.dataset,
        "split": index.split,
        "encoding": index.encoding,
        "images": index.images,
        "fingerprint": index.fingerprint,
        "scans": index.scans,
        "num_groups": index.num_groups,
        "classes": index.classes,
        "records": [_content(record) for record in index.records],
    }
    if index.fields:
        content["fields"] = dict(sorted(index.fields.items()))
    sealed = {"format": FORMAT, "version": layout.VERSION, "checksum": _seal(content), **content}
    data = (json.dumps(sealed, indent=1) + "\n").encode()
    if len(data) > MAX_INDEX_BYTES:
        raise RecordError(
            f"the index of {index.dataset}/{index.split} would have {len(data):,} bytes, more than the "
            f"limit of {MAX_INDEX_BYTES:,}. Raise dataset.images_per_record."
        )
    return data


def _content(entry: RecordEntry) -> dict[str, Any]:
    given = {name: getattr(entry, name) for name in RecordEntry.__dataclass_fields__}
    return {
        name: _content(value) if isinstance(value, RecordEntry) else value
        for name, value in given.items()
        if value is not None
    }


def parse_index(data: bytes, where: str) -> RecordIndex:
    """Parse the output of `dump_index`; `where` names the file in errors.

    Raises:
        RecordError: not an index, of another format version, or damaged.
    """
    try:
        content = parse_json(data, MAX_INDEX_BYTES)
    except UnfitError as error:
        raise RecordError(f"{where} is damaged: {error}. {_REMEDY}") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise RecordError(f'{where} is not an index of records: "format" is not "{FORMAT}". {_REMEDY}')
    layout.refuse_version(content.pop("version", None), where)
    if content.pop("checksum", None) != _seal(content):
        raise RecordError(f"{where} is damaged or was edited: its checksum does not match. {_REMEDY}")
    try:
        _wanted(more=layout.is_later(content, MINOR_WITH_FIELDS))(content, "")
        return _build(content)
    except UnfitError as error:
        raise RecordError(f"{where} cannot be used: {error}. {_REMEDY}") from error


_ENTRY: dict[str, Check] = {
    "file": check.word,
    "num_samples": check.whole(1, layout.MAX_SAMPLES),
    "header_bytes": check.whole(layout.MIN_HEADER_BYTES, MAX_RECORD_BYTES),
    "group_ends": check.wholes(1, MAX_RECORD_BYTES),
}

_INDEX: dict[str, Check] = {
    "num_groups": check.whole(1, layout.MAX_GROUPS),
    "classes": check.mapping_of(check.texts),
}


def _wanted(*, more: bool) -> Check:
    """Return the check of an index; with `more`, unknown fields are allowed."""
    beside = check.fields(_ENTRY, more=more)
    entry = check.fields(_ENTRY, {"fingerprint": check.hex_key, "fields": beside}, more=more)
    required = layout.WHAT_THEY_ARE | _INDEX | {"records": check.list_of(entry)}
    return check.fields(required, {"fields": check.mapping_of(check.word)}, more=more)


def _build(content: dict[str, Any]) -> RecordIndex:
    num_groups, num_fields = content["num_groups"], len(content.get("fields", {}))
    records = []
    for number, record in enumerate(content.pop("records")):
        path = f"records[{number}]"
        beside = _entry(record["fields"]) if num_fields and "fields" in record else None
        records.append(_entry(record, beside))
        _check_room(records[-1], num_groups, path)
        if num_fields:
            _check_beside(beside, record["num_samples"], num_fields, path)
    files = [file.file for record in records for file in record.files]
    if len(set(files)) < len(files):
        raise UnfitError("records name a file twice")
    known = {name: content[name] for name in RecordIndex.__dataclass_fields__ if name in content}
    return RecordIndex(**known, records=records)


def _entry(content: dict[str, Any], beside: RecordEntry | None = None) -> RecordEntry:
    ends, fingerprint = tuple(content["group_ends"]), content.get("fingerprint")
    return RecordEntry(
        content["file"], content["num_samples"], ends, content["header_bytes"], fingerprint, beside
    )


def _check_beside(beside: RecordEntry | None, num_samples: int, num_fields: int, path: str) -> None:
    """Raise UnfitError unless a record has a file with all fields of all its samples."""
    if beside is None:
        raise UnfitError(f"{path}.fields is missing")
    if beside.num_samples != num_samples:
        raise UnfitError(f"{path}.fields.num_samples is {beside.num_samples}, wanted {num_samples}")
    _check_room(beside, num_fields, f"{path}.fields")


def _check_room(record: RecordEntry, num_groups: int, path: str) -> None:
    """Raise UnfitError unless every group has room for the lengths and checksums of its pieces."""
    ends = record.group_ends
    if len(ends) != num_groups:
        raise UnfitError(f"{path}.group_ends has {len(ends)} offsets, wanted {num_groups} (num_groups)")
    least = table_bytes(record.num_samples)
    starts = (record.header_bytes, *ends[:-1])
    sizes = list(map(operator.sub, ends, starts))
    if min(sizes) < least:
        group = next(group for group, size in enumerate(sizes) if size < least)
        raise UnfitError(
            f"{path}.group_ends[{group}] is {ends[group]}, wanted at least {starts[group] + least} for "
            f"{record.num_samples} samples (num_samples)"
        )


def _seal(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return str(xxhash.xxh3_64_hexdigest(canonical.encode()))
