"""Make records in a local folder, upload them to an object store, and compare them there with the images.

Conditional requests upload each record once, then the indexes, and finally the list of source images. Nobody
can open the records before the indexes exist, and of two concurrent encodes only one can finish. An
interrupted upload resumes record by record. Existing files are replaced only as `records.on_change` allows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.sample import SPLITS
from pcr_exp.datasets.seen import some
from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.records.encode import Progress, no_progress
from pcr_exp.records.groups import table_bytes
from pcr_exp.records.index import INDEX_FILE, TABLE_FILE, RecordEntry, RecordIndex, parse_index
from pcr_exp.records.markers import REJECTED_FILE
from pcr_exp.records.prepare import OnReport, check_records, is_finished, prepare_records, records_folder
from pcr_exp.records.sources import IMAGES_FILE, SOURCE_FILE
from pcr_exp.records.writer import ENCODINGS
from pcr_exp.storage.hub import HubStorage
from pcr_exp.storage.open import open_remote
from pcr_exp.storage.protocol import Below, WritableStorage, opening
from pcr_exp.system.atomic import make_folder, write_atomic

log = logging.getLogger(__name__)

_INDEXES = [f"{split}/{encoding}/{INDEX_FILE}" for split in SPLITS for encoding in ENCODINGS]
_TABLES = [f"{split}/{encoding}/{TABLE_FILE}" for split in SPLITS for encoding in ENCODINGS]
_BESIDE = [
    *(f"{split}/{REJECTED_FILE}" for split in SPLITS),
    REJECTED_FILE,
    *_TABLES,
]
_NOTES = [IMAGES_FILE, SOURCE_FILE]
"""Sent after the indexes, as on a disk: these may list fewer images than the records hold, never more."""
_NUM_SENDERS = 4
CARD_FILE = "README.md"
_NUM_CLASSES = 50
"""Maximum number of a label's classes that the dataset card names."""
_HEAD = """---
# license: state the licence of the photographs here, such as cc-by-4.0
viewer: false
tags:
- progressive-compressed-records
task_categories:
- image-classification
---
"""


def prepare_in_bucket(
    dataset: DatasetConfig,
    records: RecordsConfig,
    progress: Progress = no_progress,
    on_report: OnReport | None = None,
) -> Path:
    """Make records in `records.staging` as `prepare_records` does, and upload what the bucket lacks.

    Returns:
        The local folder, which may be removed.

    Raises:
        ConfigError: obstore and huggingface_hub cannot write to `records.root`.
        RecordError: the bucket has other records, which `records.on_change` does not allow to replace.
        PcrExpError: as in `prepare_records`, or the store refuses writes.
    """
    storage, name = _open(records), records_folder(dataset, records)
    folder = Path(records.staging) / name
    before = _read_small_files(storage, name)
    if before.keys() >= set(_INDEXES) and not is_finished(folder):
        _write_small_files(before, folder)
    local = replace(records, root=records.staging)
    stored = Below(storage, name)
    made = prepare_records(dataset, local, progress, on_report, stored=stored)
    if isinstance(storage, HubStorage) and not storage.write(
        CARD_FILE, _dataset_card(made, str(storage)).encode()
    ):
        log.info("%s/%s exists already and is left unchanged", storage, CARD_FILE)
    send(made, storage, name, before, on_change=records.on_change)
    return made


def check_bucket(
    dataset: DatasetConfig,
    records: RecordsConfig,
    *,
    contents: bool = False,
    progress: Progress = no_progress,
) -> str:
    """Check records in an object store as `check_records` does, and that every record is there in full.

    Raises:
        RecordError: as in `check_records`, or a record is missing or has another size than its index states.
        StorageError: the store cannot be read.
    """
    storage, name = _open(records), records_folder(dataset, records)
    with opening():
        sizes = dict(storage.sizes(name))
    small = _read_small_files(storage, name)
    for path in small.keys() & set(_INDEXES):
        index = parse_index(small[path], f"{storage}/{name}/{path}")
        for entry in (file for record in index.records for file in record.files):
            file = f"{name}/{Path(path).parent.as_posix()}/{entry.file}"
            if sizes.get(file) != entry.group_ends[-1]:
                raise RecordError(
                    f"{storage}/{file} has {sizes.get(file, 0)} bytes, but its index says "
                    f"{entry.group_ends[-1]}. Prepare the records again, with records.staging set to the "
                    "folder where they were made."
                )
    with TemporaryDirectory() as temporary:
        _write_small_files(small, Path(temporary) / name)
        local = replace(records, root=temporary)
        below = Below(storage, name)
        found = check_records(dataset, local, contents=contents, progress=progress, stored=below)
    return f"{found}; {len(sizes)} objects below {storage}/{name} match their indexes"


def send(
    folder: Path, storage: WritableStorage, name: str, before: dict[str, bytes], *, on_change: str
) -> None:
    """Upload finished records from `folder` to `name` in the bucket.

    Args:
        before: Small files that the bucket had before anything was made, by path.
        on_change: `records.on_change`. `reencode` replaces other records in the bucket; `append` replaces an
            index by one that lists more records.

    Raises:
        RecordError: the bucket has other records, or a record is neither there nor in `folder`.
        StorageError: the store refuses writes.
    """
    gives_way = on_change == "reencode"
    indexes = {path: (folder / path).read_bytes() for path in _INDEXES}
    changed = [path for path in _INDEXES if before.get(path, indexes[path]) != indexes[path]]
    for path in () if gives_way else changed:
        if on_change != "append" or not _lists_all(before[path], indexes[path], path):
            raise _other_records(f"{storage}/{name}/{path}")
    if gives_way:
        for path in changed:  # nobody must read new records through an old index
            storage.remove(f"{name}/{path}")
        storage.flush()
    sizes = dict(storage.sizes(name))
    with ThreadPoolExecutor(_NUM_SENDERS, thread_name_prefix="send") as pool:
        sent = [
            pool.submit(
                _send_record, folder, storage, name, Path(path).parent / entry.file, entry, sizes, gives_way
            )
            for path in _INDEXES
            for record in parse_index(indexes[path], path).records
            for entry in record.files
        ]
        num_sent = sum(one.result() for one in sent)
    storage.flush()
    log.info("%d of %d records were sent to %s/%s", num_sent, len(sent), storage, name)
    _send_small(folder, storage, name, before, _BESIDE)
    for path, data in indexes.items():
        replaces = before.get(path) if path in changed and not gives_way else None
        if not storage.write(f"{name}/{path}", data, replaces=replaces):
            raise _other_records(f"{storage}/{name}/{path}")
    storage.flush()
    _send_small(folder, storage, name, before, _NOTES)


def _send_small(
    folder: Path, storage: WritableStorage, name: str, before: Mapping[str, bytes], paths: Sequence[str]
) -> None:
    for path in paths:
        data = (folder / path).read_bytes() if (folder / path).exists() else None
        if data is None or data == before.get(path):
            continue
        if not storage.write(f"{name}/{path}", data, replaces=before.get(path)):
            log.warning("%s/%s/%s was written by another encode and is left unchanged", storage, name, path)
    storage.flush()


def _lists_all(before: bytes, now: bytes, path: str) -> bool:
    """Return whether an index lists all records of the one before it."""
    old, new = (
        {(entry.file, entry.group_ends) for entry in parse_index(data, path).records}
        for data in (before, now)
    )
    return old <= new


def _send_record(
    folder: Path,
    storage: WritableStorage,
    name: str,
    file: Path,
    entry: RecordEntry,
    sizes: dict[str, int],
    gives_way: bool,
) -> bool:
    """Upload a record unless the bucket has it; return whether it was uploaded."""
    local, path = folder / file, f"{name}/{file.as_posix()}"
    if path in sizes:
        is_there = sizes[path] == entry.group_ends[-1] and (
            not local.exists()
            or all(storage.read(path, *part) == _part(local, *part) for part in _parts(entry, gives_way))
        )
        if is_there:
            return False
        if not gives_way:
            raise _other_records(f"{storage}/{path}")
        storage.remove(path)
    if not local.exists():
        raise RecordError(
            f"{storage}/{path} does not exist, and neither does {local}. Remove {folder} and prepare "
            "the records again to encode them from the images."
        )
    if not storage.write(path, local.read_bytes()):
        raise _other_records(f"{storage}/{path}")
    return True


def _parts(entry: RecordEntry, with_tables: bool) -> list[tuple[int, int]]:
    """Return (offset, bytes) of the header and, with `with_tables`, of the tables with all piece checksums.

    The header's keys cover ids, labels and sizes only, so it misses an image replaced by one of equal size.
    """
    starts = (entry.header_bytes, *entry.group_ends[:-1]) if with_tables else ()
    return [(0, entry.header_bytes), *((start, table_bytes(entry.num_samples)) for start in starts)]


def _part(local: Path, offset: int, num_bytes: int) -> bytes:
    with local.open("rb") as file:
        file.seek(offset)
        return file.read(num_bytes)


def _read_small_files(storage: WritableStorage, name: str) -> dict[str, bytes]:
    """Read the indexes and the other small files of a dataset from the bucket, by path."""
    with opening():
        there = {path: storage.size_or_none(f"{name}/{path}") for path in [*_INDEXES, *_BESIDE, *_NOTES]}
    return {path: storage.read(f"{name}/{path}", 0, size) for path, size in there.items() if size is not None}


def _write_small_files(files: dict[str, bytes], folder: Path) -> None:
    for path, data in files.items():
        make_folder((folder / path).parent)
        write_atomic(folder / path, [data])


def _open(records: RecordsConfig) -> WritableStorage:
    storage = None
    if not records.root.startswith(("http://", "https://")):
        storage = open_remote(records.root, records.storage_client, records.storage_options)
    if not isinstance(storage, WritableStorage):
        raise ConfigError(
            f"records.root={records.root!r}: records cannot be written there. Wanted a local folder, s3://, "
            "gs:// or az:// with obstore (pip install 'pcr-exp[remote]'), or hf:// (pip install "
            "'pcr-exp[hub]'). Otherwise prepare the records with a local records.root, copy that folder "
            "there, and train with records.auto_prepare=false."
        )
    return storage


def _other_records(where: str) -> RecordError:
    return RecordError(
        f"{where} exists already, from a different encode, and is not overwritten. Choose another "
        "records.root, or replace the existing records with records.on_change=reencode."
    )


def _dataset_card(folder: Path, root: str) -> str:
    """Return a dataset card in Markdown, with the licence left for the user to fill in.

    Args:
        folder: Folder of finished records of all splits.
        root: Address below which they will be stored, in a folder of the same name.

    Raises:
        RecordError: an index is damaged.
    """
    found = {split: folder / split / "pcr" / INDEX_FILE for split in SPLITS}
    indexes = {split: parse_index(path.read_bytes(), str(path)) for split, path in found.items()}
    train = indexes["train"]
    num_images = sum(index.num_samples for index in indexes.values())
    parts = [
        f"# {train.dataset}",
        f"{num_images:,} images as Progressive Compressed Records (format version 2, scans {train.scans}). "
        "The scan group that a reader chooses sets how many bytes of each image it reads, with one request "
        "per record.",
        f"""```python
import pcr_exp as pcr  # pip install 'pcr-exp[hub]'

train = pcr.open("{root}/{folder.name}/train", "group_{(train.num_groups + 1) // 2}")
for images, labels in train.loader(batch_size=256, image_size=224): ...
```""",
        _table(["split", "images", "records"], [
            [split, f"{index.num_samples:,}", f"{len(index.records):,}"] for split, index in indexes.items()
        ]),
        _table(["scan group", "bytes per image", "of all"], _bytes_of_groups(train)),
        *(f"Classes of `{label}`: {len(names):,} ({some(names, limit=_NUM_CLASSES)})."
          for label, names in train.classes.items()),
        "`baseline/`, next to `pcr/`, holds the original files.",
    ]  # fmt: skip
    return _HEAD + "\n" + "\n\n".join(parts) + "\n"


def _bytes_of_groups(index: RecordIndex) -> list[list[str]]:
    means = {group: index.mean_prefix_bytes(group) for group in range(1, index.num_groups + 1)}
    return [
        [str(group), f"{mean:,.0f}", f"{mean / means[index.num_groups]:.0%}"] for group, mean in means.items()
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
