"""Source of records, saved with them to detect images that were added, removed or replaced.

    source.json            the dataset's folder, and the state of each folder, label file and image file
    rejected.csv           table rows that are not images, with the reason; only if there are any
    source_images.csv.gz   split, id, labels, bytes and modification time of each image

`source.json` is enough for a comparison that takes a second: a folder's modification time changes with the
names in it, a file's with its contents. It lists at most MAX_COMPARED_FILES image files.
`source_images.csv.gz` shows which images changed, and how.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.sample import Dataset, Sample
from pcr_exp.datasets.seen import State, file_state, folder_state, some
from pcr_exp.datasets.table import TableConfig
from pcr_exp.records import strict_json as check
from pcr_exp.records.fingerprint import content_key
from pcr_exp.records.markers import REJECTED_FILE, csv_of, write_rejected
from pcr_exp.records.strict_json import Check, UnfitError, parse_json
from pcr_exp.system import MIB
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.keys import key_of
from pcr_exp.system.regular import open_regular_file, read_regular

SOURCE_FILE = "source.json"
IMAGES_FILE = "source_images.csv.gz"

MAX_COMPARED_FILES = 10_000
"""Maximum number of image files whose size and modification time are compared before each run: 0.1 s on a
local disk. If there are more files, those compared are spaced evenly over the sorted paths."""
_MAX_SOURCE_BYTES = 2**28
_MAX_IMAGES_BYTES = 2**31
"""Limit for the decompressed table, some 20 million images: a small file may decompress to any size."""
_SOURCE: dict[str, Check] = {
    "root": check.text,
    "folders": check.mapping_of(check.wholes(-(2**63), 2**63)),
    "tables": check.mapping_of(check.wholes(-(2**63), 2**63)),
    "remarks": check.texts,
}
_ADDED: dict[str, Check] = {
    "files": check.mapping_of(check.wholes(-(2**63), 2**63)),
    "num_files": check.whole(0, 2**63),
    "asked": check.text,
}
"""Missing from files of earlier versions; images are then compared once, and these fields are saved."""


@dataclass(frozen=True, slots=True)
class SourceImage:
    """An image when its dataset was read; `state` is None if its file was not accessible."""

    split: str
    labels: str
    state: State | None


@dataclass(frozen=True, slots=True)
class Source:
    """Files that records were made from. Paths are absolute."""

    root: str
    folders: dict[str, State]
    tables: dict[str, State]
    remarks: list[str]
    """Remarks on the dataset from when it was read."""
    files: dict[str, State] = field(default_factory=dict)
    """Image files: all, or at most MAX_COMPARED_FILES of them."""
    num_files: int = 0
    """Number of all image files."""
    asked: str = ""
    """`asked_of` the dataset's settings."""

    def is_unchanged(self) -> bool:
        """Return whether the states of the listed folders, label files and image files are unchanged.

        False if no image file is listed.
        """
        if not self.files:
            return False
        of_files = (self.tables, file_state), (self.files, file_state)
        for paths, state_of in ((self.folders, folder_state), *of_files):
            for path, state in paths.items():
                try:
                    if state_of(Path(path)) != tuple(state):
                        return False
                except (OSError, TypeError):
                    return False
        return True


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids of images that differ from those that records were made from."""

    added: list[str]
    removed: list[str]
    replaced: list[str]
    """Images whose size or bytes changed."""
    relabelled: list[str]
    """Images whose labels or split changed."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.replaced or self.relabelled)

    def __str__(self) -> str:
        words = {
            "added": self.added,
            "removed": self.removed,
            "replaced": self.replaced,
            "with other labels or in another split": self.relabelled,
        }
        return "; ".join(f"{len(ids)} {word}: {some(ids)}" for word, ids in words.items() if ids)


def resolved(root: str) -> str:
    """Return the canonical absolute path of a dataset's folder."""
    return str(Path(root).expanduser().resolve())


def asked_of(dataset: DatasetConfig) -> str:
    """Return a key of the table and of the columns that decide splits and values; empty without a table.

    Records are not named by these settings, so two tables in one folder would otherwise share their records.
    The key ignores class columns: records may hold several, and name them.
    """
    if not isinstance(dataset, TableConfig) or dataset.table is None:
        return ""
    columns = asdict(dataset.columns)
    del columns["labels"]
    values = dataset.label if dataset.columns.kind != "class" else ""
    return key_of({"table": resolved(dataset.table), "columns": columns, "values": values})


def image_states(dataset: Dataset) -> dict[str, SourceImage]:
    """Return every image of a dataset with the current state of its file, by id."""
    return {
        sample.id: SourceImage(split, _labels(sample), _state(sample))
        for split, samples in dataset.splits.items()
        for sample in samples
    }


def compare(before: Mapping[str, SourceImage], now: Mapping[str, SourceImage]) -> tuple[Changes, list[str]]:
    """Return the changes, and the ids of images whose modification time changed but not their size.

    Args:
        before: the images that records were made from.
        now: the images that exist now.
    """
    changes = Changes([], [id_ for id_ in before if id_ not in now], [], [])
    doubtful = []
    for id_, image in now.items():
        old = before.get(id_)
        if old is None:
            changes.added.append(id_)
        elif (old.split, old.labels) != (image.split, image.labels):
            changes.relabelled.append(id_)
        elif old.state is None or image.state is None or old.state[0] != image.state[0]:
            if old.state != image.state:
                changes.replaced.append(id_)
        elif old.state != image.state:
            doubtful.append(id_)
    return changes, doubtful


def write_source(
    folder: Path, settings: DatasetConfig, dataset: Dataset, images: Mapping[str, SourceImage]
) -> None:
    """Save what the records in `folder` were made from: a dataset that was read with these settings.

    Raises:
        StorageError: the disk is full or cannot be written to.
    """
    seen, files = dataset.seen, _files(dataset, images)
    chosen = sorted(files)[:: max(1, -(-len(files) // MAX_COMPARED_FILES))]
    source = Source(
        root=resolved(str(settings.root)),
        folders={str(path.resolve()): state for path, state in seen.folders.items()},
        tables={str(path.resolve()): state for path, state in seen.tables.items()},
        remarks=seen.all_remarks(),
        files={str(path.resolve()): files[path] for path in chosen},
        num_files=len(files),
        asked=asked_of(settings),
    )
    header = ["split", "id", "labels", "bytes", "changed_at_ns"]
    rows = ([image.split, id_, image.labels, *(image.state or ("", ""))] for id_, image in images.items())
    # Level 1, because the default level takes seconds for a million rows.
    packed = gzip.compress(csv_of(chain([header], rows)), 1, mtime=0)
    write_atomic(folder / IMAGES_FILE, [packed])
    if seen.refused or (folder / REJECTED_FILE).exists():
        write_rejected(folder, [list(row) for row in seen.refused.items()])
    write_atomic(folder / SOURCE_FILE, [json.dumps(asdict(source), indent=1).encode()])


def read_source(folder: Path) -> Source | None:
    """Read the source of the records in `folder`; None if it is missing or not in this format."""
    try:
        content = parse_json(read_regular(folder / SOURCE_FILE), _MAX_SOURCE_BYTES)
        check.fields(_SOURCE, _ADDED)(content, "")
        return Source(**content)
    except (OSError, UnfitError):
        return None


def read_images(folder: Path) -> dict[str, SourceImage] | None:
    """Read the images that the records in `folder` were made from, by id.

    None if the table is missing, unreadable or above 2 GiB: a part of it would make images look added.
    """
    try:
        with open_regular_file(folder / IMAGES_FILE) as packed, gzip.open(packed) as file:
            # In blocks of 1 MiB: a read allocates its full requested size.
            num_reads = _MAX_IMAGES_BYTES // MIB
            data = b"".join(islice(iter(lambda: file.read(MIB), b""), num_reads + 1))
        if len(data) > _MAX_IMAGES_BYTES:
            return None
        return dict(_parse(data.decode(errors="surrogateescape")))
    except (OSError, ValueError, EOFError, zlib.error, csv.Error):
        return None


def _parse(table: str) -> Iterator[tuple[str, SourceImage]]:
    rows = csv.reader(io.StringIO(table, newline=""))
    next(rows, None)
    for split, id_, labels, num_bytes, changed_at_ns in rows:
        state = (int(num_bytes), int(changed_at_ns)) if num_bytes else None
        yield id_, SourceImage(split, labels, state)


def _labels(sample: Sample) -> str:
    """Format labels, and content keys of fields that are not files, as one string."""
    given = {f"beside.{k}": content_key(v) for k, v in sample.fields.items() if isinstance(v, bytes)}
    values = {**sample.labels, **given}
    return " ".join(f"{name}={values[name]}" for name in sorted(values))


def _field_files(sample: Sample) -> list[Path]:
    return [source for source in sample.fields.values() if isinstance(source, Path)]


def _state(sample: Sample) -> State | None:
    """Total bytes and latest modification time of an image and its field files; None if not accessible."""
    try:
        num_bytes, changed_at_ns = file_state(sample.path)
        beside = [file_state(path) for path in _field_files(sample)]
    except OSError:
        return None
    num_bytes = num_bytes if sample.packed is None else sample.packed.num_bytes
    return num_bytes + sum(size for size, _ in beside), max(changed_at_ns, *(at for _, at in beside), 0)


def _files(dataset: Dataset, images: Mapping[str, SourceImage]) -> dict[Path, State]:
    """State of every file that contains images or fields, taken from `images` where possible."""
    found: dict[Path, State] = {}
    for samples in dataset.splits.values():
        for sample in samples:
            state = images[sample.id].state
            if state is None:
                continue
            if beside := _field_files(sample):
                with suppress(OSError):  # a file that vanished meanwhile is left out
                    found |= {path: file_state(path) for path in (sample.path, *beside)}
            elif sample.path not in found:
                size = state[0] if sample.packed is None else sample.path.stat().st_size
                found[sample.path] = size, state[1]
    return found
