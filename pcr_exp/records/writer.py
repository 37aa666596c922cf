"""Write a split's folder: first the records, then `rejected.csv`, then the indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import ImageCodec
from pcr_exp.images.decode import PROGRESSIVE, WHOLE
from pcr_exp.records.fields import fields_id
from pcr_exp.records.format import PackedRecord, RecordHeader, pack_record
from pcr_exp.records.index import INDEX_FILE, RecordEntry, RecordIndex, parse_index
from pcr_exp.records.index_table import write_index
from pcr_exp.records.markers import (
    RecordMarker,
    fields_file,
    read_rejected,
    record_file,
    record_number,
    write_marker,
    write_rejected,
)
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.regular import read_regular


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image: `original` is its file, `groups` its encoded form with one piece per scan group."""

    original: bytes
    groups: list[bytes]
    is_turned: bool
    """Whether EXIF asks for another orientation. Pixels are not turned, just as in `ImageFolder`."""
    fields: Mapping[str, bytes] = field(default_factory=dict)
    """Field name -> bytes."""


ENCODINGS: dict[str, ImageCodec] = {"baseline": WHOLE, "pcr": PROGRESSIVE}
"""Encoding, which is also the name of its folder -> the codec that stores its images."""


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """Writes the records of one split, in every encoding."""

    folder: Path
    dataset: str
    split: str
    classes: dict[str, list[str]]
    images: str
    fingerprint: str
    earlier: dict[str, list[RecordEntry]] = field(default_factory=dict)
    """Records of earlier encodes, by encoding. They stay, and come first in the indexes."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Name -> kind of each field stored with the images."""
    codecs: Mapping[str, ImageCodec] = field(default_factory=ENCODINGS.copy)
    """Encoding -> codec."""

    @property
    def first_number(self) -> int:
        """The number of this encode's first record; lower numbers are taken."""
        numbers = (record_number(entry.file) for entries in self.earlier.values() for entry in entries)
        return 1 + max(numbers, default=-1)

    def write_record(
        self, number: int, loaded: Sequence[tuple[Sample, StoredImage | ImageError]], states: str
    ) -> RecordMarker:
        """Write one record and its marker, with the images in order; errors are listed as rejected.

        `states` is the `states_key` of the samples, from before they were loaded.
        """
        kept = [(sample, image) for sample, image in loaded if isinstance(image, StoredImage)]
        packed: dict[str, PackedRecord] = {}
        beside: dict[str, PackedRecord] = {}
        for encoding, codec in self.codecs.items() if kept else ():
            pieces = [image.groups if encoding == "pcr" else [image.original] for _, image in kept]
            packed[encoding] = self._write(
                encoding, record_file(number), kept, pieces, codec.num_groups, codec.name
            )
            if names := sorted(self.fields):  # the layout of a record, with a field in place of each group
                pieces = [[image.fields[name] for name in names] for _, image in kept]
                beside[encoding] = self._write(
                    encoding, fields_file(number), kept, pieces, len(names), fields_id(self.fields)
                )
        marker = RecordMarker(
            fingerprint=self.fingerprint,
            states=states,
            number=number,
            num_samples=len(kept),
            group_ends={name: list(record.group_ends) for name, record in packed.items()},
            header_bytes={name: record.header_bytes for name, record in packed.items()},
            rejected=[[sample.id, str(error)] for sample, error in loaded if isinstance(error, ImageError)],
            num_turned=sum(image.is_turned for _, image in kept),
            field_ends={name: list(fields.group_ends) for name, fields in beside.items()},
            field_header_bytes={name: fields.header_bytes for name, fields in beside.items()},
        )
        write_marker(self.folder, marker)
        return marker

    def _write(
        self,
        encoding: str,
        file: str,
        images: Sequence[tuple[Sample, StoredImage]],
        pieces: Sequence[Sequence[bytes]],
        num_groups: int,
        scans: str,
    ) -> PackedRecord:
        header = RecordHeader(
            dataset=self.dataset,
            split=self.split,
            encoding=encoding,
            fingerprint=self.fingerprint,
            num_groups=num_groups,
            ids=[sample.id for sample, _ in images],
            labels={label: [sample.labels[label] for sample, _ in images] for label in self.classes},
            images=self.images,
            scans=scans,
        )
        packed = pack_record(header, pieces)
        write_atomic(self.folder / encoding / file, packed.chunks)
        return packed

    def finish(self, markers: Sequence[RecordMarker]) -> None:
        """Write `rejected.csv` and, last, the indexes.

        Raises:
            RecordError: no image is left, and the split is not `tune`; no index is written.
        """
        before = {id_: [id_, reason] for id_, reason in read_rejected(self.folder)} if self.earlier else {}
        now = {row[0]: list(row) for marker in markers for row in marker.rejected}
        write_rejected(self.folder, list((before | now).values()))
        stored = [marker for marker in markers if marker.num_samples]
        if not stored and self.split != "tune" and not self.earlier:
            raise RecordError(
                f"no image of {self.dataset}/{self.split} could be stored; {self.folder}/rejected.csv gives "
                "the reason for each. Check dataset.root."
            )
        for encoding, codec in self.codecs.items():
            entries = self.earlier.get(encoding, []) + [marker.entry(encoding) for marker in stored]
            index = RecordIndex(
                dataset=self.dataset,
                split=self.split,
                encoding=encoding,
                fingerprint=self.fingerprint,
                num_groups=codec.num_groups,
                classes=self.classes,
                records=entries,
                images=self.images,
                scans=codec.name,
                fields=self.fields,
            )
            write_index(self.folder / encoding, index)

    def is_finished(self) -> bool:
        """Return whether all indexes exist. Raises RecordError as `read_indexes` does."""
        return len(self.read_indexes()) == len(ENCODINGS)

    def remove_indexes_of_others(self) -> None:
        """Remove indexes with another fingerprint, so that an encode replaces their records."""
        for encoding in ENCODINGS:
            path = self._index_path(encoding)
            if path.exists() and parse_index(read_regular(path), str(path)).fingerprint != self.fingerprint:
                path.unlink()

    def read_indexes(self) -> dict[str, RecordIndex]:
        """Read the existing indexes, by encoding.

        Raises:
            RecordError: an index is damaged, or its records were made from other files or settings.
        """
        indexes = self.parse_indexes()
        if self.earlier:  # other indexes list the records that this encode adds to
            return {name: index for name, index in indexes.items() if index.fingerprint == self.fingerprint}
        for index in indexes.values():
            was_added_to = any(entry.fingerprint for entry in index.records)
            if index.fingerprint != self.fingerprint and not (was_added_to and index.images == self.images):
                raise RecordError(
                    f"{self.folder} holds records that were made from other files or with other settings "
                    f"than {self.dataset}/{self.split} has now. Encode them again with "
                    "records.on_change=reencode. If these are two different datasets, give one of them "
                    "another dataset.name instead."
                )
        return indexes

    def parse_indexes(self) -> dict[str, RecordIndex]:
        """Parse the existing indexes, by encoding, whatever their records were made from.

        Raises:
            RecordError: an index is damaged, or of another version.
        """
        indexes = {}
        for encoding in ENCODINGS:
            path = self._index_path(encoding)
            if not path.exists():
                continue
            indexes[encoding] = parse_index(read_regular(path), str(path))
        return indexes

    def _index_path(self, encoding: str) -> Path:
        return self.folder / encoding / INDEX_FILE
