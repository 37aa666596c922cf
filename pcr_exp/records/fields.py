"""Fields: data stored with each sample's image, such as masks, in a separate file for each record.

The file has the layout of a record, with a field in place of each group. One field of all samples is
therefore one range read, and the code that reads and verifies groups also serves fields: `field_records`
returns a record set whose group g is the g-th field by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ConfigError, ImageError, RecordError
from pcr_exp.images.codec import Buffer
from pcr_exp.images.decode import WHOLE
from pcr_exp.images.jpeg import read_frame
from pcr_exp.records.field_values import parse_field
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.records.strict_json import UnfitError


def field_records(records: RecordSet) -> RecordSet:
    """Return the field files of records as a record set, one group per field. Records must have fields."""
    kinds = records.index.fields
    entries = []
    for number in range(len(records.index.records)):
        entry = records.stored(number)
        assert entry.fields is not None  # ensured by `parse_index`
        entries.append(replace(entry.fields, fingerprint=entry.fingerprint))
    index = replace(records.index, records=entries, num_groups=len(kinds), scans=fields_id(kinds), fields={})
    return RecordSet(records.storage, records.folder, index=index, codec=WHOLE)


def fields_id(kinds: Mapping[str, str]) -> str:
    """Return the `scans` of a field file's header: names and kinds of the fields, in order of names."""
    return "fields" + "".join(f"-{name}.{kinds[name]}" for name in sorted(kinds))


FILE_SUFFIXES = defaultdict(
    lambda: ".bin", array=".npy", boxes=".json", json=".json", mask=".png", text=".txt"
)
"""Kind -> suffix of a file that holds a field of this kind."""


class ReadFields(NamedTuple):
    """The result of reading fields of a record."""

    samples: list[dict[str, Buffer]]
    """Fields by name, for each sample of the record."""
    num_bytes: int
    ids: list[str] | None
    """Ids of the samples; None if the header was not read."""


class RecordFields:
    """Reader of some fields of a record set. Thread safe."""

    def __init__(self, records: RecordSet, names: Sequence[str]) -> None:
        """Select fields by name; raises ConfigError if the records lack one of them."""
        self._of = records
        index = records.index
        kinds = index.fields
        for name in names:
            if name not in kinds:
                have = ", ".join(sorted(kinds)) or "none"
                raise ConfigError(
                    f"fields={list(names)}: the records of {index.dataset}/{index.split} have no "
                    f"field {name!r}; they have {have}. Prepare them with records.fields=[{name}]."
                )
        self.kinds = {name: kinds[name] for name in names}
        """Field name -> kind."""
        order = sorted(kinds)
        self._groups = {name: 1 + order.index(name) for name in names}
        self._byte_ranges = _consecutive(self._groups.values())
        self.records = field_records(records)
        """The field files, as a record set."""
        self._single = SingleImages(self.records)

    def __reduce__(self) -> tuple[type[RecordFields], tuple[RecordSet, list[str]]]:
        return RecordFields, (self._of, list(self.kinds))

    def num_bytes(self, record: int) -> int:
        """Number of bytes that `read` reads for a record."""
        index = self.records.index
        starts = (index.prefix_bytes(record, first - 1) if first > 1 else 0 for first, _ in self._byte_ranges)
        return sum(index.prefix_bytes(record, last) for _, last in self._byte_ranges) - sum(starts)

    def read(self, record: int) -> ReadFields:
        """Read and verify fields of all samples of a record, by one range read per run of adjacent fields.

        Raises:
            RecordError: the file is cut short, damaged, or of another index.
            StorageError: the storage could not deliver.
        """
        found: dict[int, Sequence[Buffer]] = {}
        num_bytes, ids = 0, None
        for first, last in self._byte_ranges:
            if first == 1:
                prefix = self.records.read_prefix(record, last)
                num_bytes, ids = prefix.num_bytes, prefix.ids
                for group in range(1, last + 1):
                    found[group] = [prefix.piece(i, group) for i in range(len(prefix))]
            else:
                more = self.records.read_extension(record, first - 1, last)
                num_bytes += more.num_bytes
                view = memoryview(more.byte_range.data)
                for group, bounds in enumerate(more.byte_range.bounds, start=first):
                    found[group] = [view[bounds[i] : bounds[i + 1]] for i in range(len(bounds) - 1)]
        return ReadFields(self._by_sample(found), num_bytes, ids)

    def read_damaged(self, record: int) -> tuple[ReadFields, set[int]]:
        """Read fields that `read` rejected, and also return the indices of samples with a damaged field.

        Raises:
            RecordError: the file is cut short, or its header or a table is damaged.
            StorageError: the storage could not deliver.
        """
        last = max(self._groups.values())
        prefix, damaged = self.records.read_damaged_prefix(record, last)
        found = {group: [prefix.piece(i, group) for i in range(len(prefix))] for group in range(1, last + 1)}
        return ReadFields(self._by_sample(found), prefix.num_bytes, prefix.ids), damaged

    def read_several(self, record: int, numbers: Sequence[int]) -> list[dict[str, Buffer]]:
        """Read the fields of some samples by small reads, each verified separately. Raises as `read` does."""
        return [
            {name: self._single.read_piece(record, i, group) for name, group in self._groups.items()}
            for i in numbers
        ]

    def _by_sample(self, found: Mapping[int, Sequence[Buffer]]) -> list[dict[str, Buffer]]:
        columns = [found[group] for group in self._groups.values()]
        return [dict(zip(self._groups, row, strict=True)) for row in zip(*columns, strict=True)]


def load_fields(sample: Sample, kinds: Mapping[str, str], original: bytes) -> dict[str, bytes]:
    """Load the bytes of a sample's fields, and check that each is valid for its kind.

    Args:
        sample: Provides the fields, as files or bytes.
        kinds: Field name -> kind.
        original: Contents of the image file; a mask must have the image's size.

    Raises:
        ImageError: a field cannot be read or is invalid; the message names the field and the reason.
    """
    size_px = _size_px(original)
    found = {}
    for name in sorted(kinds):
        source = sample.fields[name]
        try:
            found[name] = source if isinstance(source, bytes) else source.read_bytes()
            parse_field(kinds[name], found[name], size_px)
        except OSError as error:
            raise ImageError(f"its field {name} cannot be read: {error.strerror} ({source!s})") from error
        except UnfitError as error:
            where = "" if isinstance(source, bytes) else f" ({source})"
            raise ImageError(f"its field {name} cannot be stored{where}: {error}") from error
    return found


def field_value(kind: str, data: Buffer, size_px: tuple[int, int] | None, name: str) -> object:
    """Parse stored bytes as `parse_field` does. Raises RecordError, which calls the field `name`."""
    try:
        return parse_field(kind, bytes(data), size_px)
    except UnfitError as error:
        raise RecordError(f"{name} cannot be used: {error}.") from error


def _size_px(original: bytes) -> tuple[int, int] | None:
    try:
        frame = read_frame(original)
    except ImageError:  # an image of another codec
        return None
    return frame.width_px, frame.height_px


def _consecutive(groups: Iterable[int]) -> list[tuple[int, int]]:
    """Return (first, last) of every run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for group in sorted(set(groups)):
        if runs and runs[-1][1] == group - 1:
            runs[-1] = runs[-1][0], group
        else:
            runs.append((group, group))
    return runs
