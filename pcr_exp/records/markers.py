"""Progress of an encode: a marker for each finished record, until the index replaces the markers."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.errors import RecordError
from pcr_exp.records import strict_json as check
from pcr_exp.records.format import MAX_HEADER_BYTES, MAX_SAMPLES, REMEDY
from pcr_exp.records.index import MAX_RECORD_BYTES, RecordEntry
from pcr_exp.records.strict_json import Check, UnfitError, parse_json
from pcr_exp.system.atomic import TEMPORARY_SUFFIX, make_folder, write_atomic

_MARKERS_FOLDER = ".receipts"
REJECTED_FILE = "rejected.csv"
FIELDS_SUFFIX = ".fields"
"""Suffix of the file with a record's fields."""


@dataclass(frozen=True, slots=True)
class RecordMarker:
    """Marks record `number` as stored in every encoding. `group_ends` and `header_bytes` are by encoding."""

    fingerprint: str
    states: str
    """`states_key` of the record's samples, from before they were read."""
    number: int
    num_samples: int
    group_ends: dict[str, list[int]]
    header_bytes: dict[str, int]
    rejected: list[list[str]]
    """[id, reason] of each image left out."""
    num_turned: int
    field_ends: dict[str, list[int]] = field(default_factory=dict)
    """Group ends of the field files, by encoding; empty without fields."""
    field_header_bytes: dict[str, int] = field(default_factory=dict)

    def entry(self, encoding: str) -> RecordEntry:
        """The record's entry in the index of an encoding."""
        beside = None
        if encoding in self.field_ends:
            ends = tuple(self.field_ends[encoding])
            header_bytes = self.field_header_bytes[encoding]
            beside = RecordEntry(fields_file(self.number), self.num_samples, ends, header_bytes)
        return RecordEntry(
            record_file(self.number),
            self.num_samples,
            tuple(self.group_ends[encoding]),
            self.header_bytes[encoding],
            fields=beside,
        )

    def files(self) -> list[tuple[str, RecordEntry]]:
        """(encoding, entry) of every file that was written."""
        return [(encoding, file) for encoding in self.group_ends for file in self.entry(encoding).files]


def record_file(number: int) -> str:
    """The file name of a record."""
    return f"record-{number:06d}.pcr"


def fields_file(number: int) -> str:
    """The file name of a record's fields."""
    return f"record-{number:06d}{FIELDS_SUFFIX}"


def record_number(file: str) -> int:
    """The number in a record's file name; -1 for other names."""
    digits = file.removeprefix("record-").removesuffix(".pcr")
    return int(digits) if digits.isdecimal() else -1


def write_marker(folder: Path, marker: RecordMarker) -> None:
    """Mark a record as done. Call this only after its files are synced."""
    make_folder(folder / _MARKERS_FOLDER)
    path = folder / _MARKERS_FOLDER / f"{record_file(marker.number)}.json"
    write_atomic(path, [json.dumps(asdict(marker)).encode()])


def read_markers(folder: Path, fingerprint: str) -> dict[int, RecordMarker]:
    """Read the markers with this fingerprint whose record files are complete, by record number."""
    markers = {}
    for path in sorted((folder / _MARKERS_FOLDER).glob("*.json")):
        try:
            marker = _parse_marker(path.read_bytes())
        except UnfitError:  # from another version of this program, or damaged: that record is made again
            continue
        if marker.fingerprint == fingerprint and _is_stored(folder, marker):
            markers[marker.number] = marker
    return markers


_MARKER: dict[str, Check] = {
    "fingerprint": check.hex_key,
    "states": check.hex_key,
    "number": check.whole(0, 10**9),
    "num_samples": check.whole(0, MAX_SAMPLES),
    "group_ends": check.mapping_of(check.wholes(1, MAX_RECORD_BYTES)),
    "header_bytes": check.mapping_of(check.whole(1, MAX_RECORD_BYTES)),
    "rejected": check.list_of(check.texts),
    "num_turned": check.whole(0, MAX_SAMPLES),
    "field_ends": check.mapping_of(check.wholes(1, MAX_RECORD_BYTES)),
    "field_header_bytes": check.mapping_of(check.whole(1, MAX_RECORD_BYTES)),
}


def _parse_marker(data: bytes) -> RecordMarker:
    content = parse_json(data, MAX_HEADER_BYTES)
    check.fields(_MARKER)(content, "")
    marker = RecordMarker(**content)
    encodings = set(SCANS) if marker.num_samples else set()
    if not encodings == set(marker.group_ends) == set(marker.header_bytes):
        raise UnfitError(
            f"group_ends and header_bytes do not list exactly {', '.join(sorted(encodings)) or 'nothing'}"
        )
    beside = set(marker.field_ends)
    if beside not in (set(), encodings) or beside != set(marker.field_header_bytes):
        raise UnfitError("field_ends and field_header_bytes do not list all encodings, or none")
    if not all([*marker.group_ends.values(), *marker.field_ends.values()]) or any(
        len(row) != 2 for row in marker.rejected
    ):
        raise UnfitError("group_ends or field_ends is empty, or a row of rejected is not [id, reason]")
    return marker


def remove_leftovers(folder: Path, markers: dict[int, RecordMarker], keep: Collection[str]) -> None:
    """Remove files that a stopped encode left behind: temporary files, and unmarked records not in `keep`."""
    kept = {file.file for marker in markers.values() for _, file in marker.files()} | set(keep)
    for encoding in SCANS:
        for path in (folder / encoding).glob("*"):
            is_record = path.match("record-*.pcr") or path.match(f"record-*{FIELDS_SUFFIX}")
            if (is_record and path.name not in kept) or path.name.endswith(TEMPORARY_SUFFIX):
                path.unlink()


def has_markers(folder: Path) -> bool:
    """Return whether an encode is running, or was stopped before it cleaned up."""
    return (folder / _MARKERS_FOLDER).exists()


def remove_markers(folder: Path) -> None:
    """Remove all markers, once the index has replaced them."""
    shutil.rmtree(folder / _MARKERS_FOLDER, ignore_errors=True)


def write_rejected(folder: Path, rejected: Sequence[Sequence[str]]) -> None:
    """Write `rejected.csv`: columns id, reason."""
    write_atomic(folder / REJECTED_FILE, [csv_of([["id", "reason"], *rejected])])


def csv_of(rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV table in which any file name survives: not UTF-8, or with line ends of its own."""
    text = io.StringIO(newline="")
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)  # `plain` would not quote \r
    for row in rows:
        (quoted if any("\r" in str(cell) for cell in row) else plain).writerow(row)
    return text.getvalue().encode(errors="surrogateescape")


def read_rejected(folder: Path) -> list[list[str]]:
    """Read [id, reason] of every image that was left out.

    Raises:
        RecordError: `rejected.csv` is missing or damaged.
    """
    path = folder / REJECTED_FILE
    try:
        data = path.read_bytes().decode(errors="surrogateescape")
        header, *rows = csv.reader(io.StringIO(data, newline=""))
    except (OSError, ValueError, csv.Error) as error:
        raise RecordError(f"{path} cannot be read: {error}. {REMEDY}") from error
    if header != ["id", "reason"] or any(len(row) != 2 for row in rows):
        raise RecordError(f"{path} is damaged: its columns are not id and reason. {REMEDY}")
    return rows


def _is_stored(folder: Path, marker: RecordMarker) -> bool:
    files = [(folder / encoding / file.file, file.group_ends[-1]) for encoding, file in marker.files()]
    return all(path.is_file() and path.stat().st_size == num_bytes for path, num_bytes in files)
