"""Prepare the records of a configured dataset on disk, made from the images that exist now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.records import RecordsConfig, records_name
from pcr_exp.datasets.sample import SPLITS, Dataset, keep_fields, open_dataset
from pcr_exp.errors import ConfigError, RecordError, StorageError
from pcr_exp.images.codec import ImageCodec, find_codec
from pcr_exp.records.encode import NO_RAY, EncodeReport, Progress, encode_split, no_progress
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.reuse import StoredImages
from pcr_exp.records.sources import SourceImage, image_states, read_source, write_source
from pcr_exp.records.staleness import Comparison
from pcr_exp.records.writer import ENCODINGS
from pcr_exp.storage.protocol import Storage
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.lock import hold_when_free

log = logging.getLogger(__name__)

_LOCK_FILE = ".prepare.lock"
"""Locks all splits; the encoder also locks each one."""
OnReport = Callable[[str, EncodeReport], None]
"""Called with (split, report) after each split was processed."""


def records_folder(dataset: DatasetConfig, records: RecordsConfig) -> str:
    """Return the folder of a dataset's records below `records.root`; it contains `<split>/<encoding>/`."""
    return records_name(dataset, records.codec_id, records.fields)


def ensure_records(dataset: DatasetConfig, records: RecordsConfig, progress: Progress = no_progress) -> None:
    """Make missing records before they are read, and detect outdated ones.

    With `records.auto_prepare=false` nothing is made. Remote records (`records.root` with ://) are used as
    they are. If `Source.is_unchanged` finds all sizes and modification times unchanged, no image is read.

    Raises:
        PcrExpError: as in `prepare_records`.
    """
    if "://" in records.root:
        log.info("using the records in %s without comparing them with the images", records.root)
        return
    if records.auto_prepare:
        prepare_records(dataset, records, progress=progress, thorough=False)
    elif is_finished(folder := _path(dataset, records)):
        Comparison(dataset, records, folder).settle(thorough=False)


def prepare_records(
    dataset: DatasetConfig,
    records: RecordsConfig,
    progress: Progress = no_progress,
    on_report: OnReport | None = None,
    *,
    thorough: bool = True,
    stored: Storage | None = None,
) -> Path:
    """Encode all splits, unless that is done already; finished records do not need the dataset.

    While another process prepares the same records, this one waits and then uses them. It logs which process
    it waits for; Ctrl-C ends the wait.

    If the dataset exists, its images are compared with those that the records were made from, and
    `records.on_change` decides what happens to differences. If `dataset.root` is another folder than before,
    only names, labels and sizes are compared. The records' name omits that folder, so both can be moved.

    Args:
        dataset: the dataset to encode.
        records: where and how to store it.
        progress: called with (images done, images in all), over all splits.
        on_report: called with (split, report) after each split was processed.
        thorough: compare every image, not only the files that `Source.is_unchanged` compares.
        stored: storage of finished records, if they are not in the returned folder.

    Returns:
        The folder that contains `train/`, `tune/` and `val/`.

    Raises:
        ConfigError: `records.root` is not a local folder.
        RecordError: images were added, removed or replaced.
        DatasetError, ImageError, RecordError, StorageError: as in `open_dataset` and `encode_split`.
    """
    if "://" in records.root:
        raise ConfigError(
            f"records.root={records.root!r}: wanted a local folder, because records are made there. To "
            "upload records to an object store, use `python -m experiments.prepare`."
        )
    folder = _path(dataset, records)
    encode = partial(_encode, dataset, records, folder, progress, on_report)
    opened = None
    if is_finished(folder):
        comparison = Comparison(dataset, records, folder, stored)
        if comparison.settle(thorough=thorough):
            return folder
        if comparison.changes is None:  # the encoder compares; without the lock, for read-only disks
            encode(*_outdated(comparison, records, folder))
            return folder
    else:
        opened = keep_fields(open_dataset(dataset), records.fields)
    make_folder(folder)
    with hold_when_free(folder / _LOCK_FILE, partial(_log_wait, folder)):
        # The process that held the lock may have made the records, or changed existing ones.
        if not is_finished(folder):
            opened = opened or keep_fields(open_dataset(dataset), records.fields)
            encode(opened, image_states(opened), None)
            return folder
        comparison = Comparison(dataset, records, folder, stored)
        if not comparison.settle(thorough=thorough):
            encode(*_outdated(comparison, records, folder))
    return folder


def _outdated(
    comparison: Comparison, records: RecordsConfig, folder: Path
) -> tuple[Dataset, dict[str, SourceImage], Collection[str] | None]:
    """Return images and the ids that records were made from; `reencode` removes indexes of changed splits."""
    assert comparison.opened is not None
    for split in comparison.splits_of_other_bytes() if records.on_change == "reencode" else ():
        for encoding in ENCODINGS:  # images of the same size would pass as already encoded
            (folder / split / encoding / INDEX_FILE).unlink(missing_ok=True)
    return comparison.opened, comparison.images, comparison.known


def _log_wait(folder: Path, holder: str) -> None:
    log.warning(
        "waiting for %s, which is preparing %s; its records are used once it finishes. Ctrl-C ends the wait.",
        holder,
        folder,
    )


def check_records(
    dataset: DatasetConfig,
    records: RecordsConfig,
    *,
    contents: bool = False,
    progress: Progress = no_progress,
    stored: Storage | None = None,
) -> str:
    """Compare every image with those that the records were made from, change nothing, and return a summary.

    Args:
        dataset: the dataset of the images.
        records: the location of the records.
        contents: compare bytes as well, not only names, labels, sizes and modification times.
        progress: called with (images compared by bytes, images to compare).
        stored: storage of the records, if they are not in their folder below `records.root`.

    Raises:
        RecordError: there are no records, or images were added, removed or replaced.
        DatasetError: the images cannot be read.
    """
    folder = _path(dataset, records)
    if not is_finished(folder):
        raise RecordError(f"{folder}: the records of {dataset.name} are missing or incomplete. Prepare them.")
    comparison = Comparison(dataset, records, folder, stored)
    comparison.compare(contents=contents, progress=progress)
    if comparison.changes is None:
        raise RecordError(
            f"{folder} does not list the images that its records were made from. Prepare the records again: "
            "this compares names, labels and sizes, and writes the list."
        )
    if comparison.changes:
        raise RecordError(comparison.describe())
    found = f"{len(comparison.images)} images are unchanged since the records were made"
    if contents:
        return f"{found}: the bytes of {comparison.num_compared} were compared with those in the records"
    by = "names, labels, sizes and times" if comparison.at_home else "names, labels and sizes"
    return f"{found}, judging by {by}; --check=content also compares their bytes"


def read_remarks(folder: Path) -> list[str]:
    """Read the dataset's remarks from when its records were made: files left out, classes without images."""
    source = read_source(folder)
    return [] if source is None else source.remarks


def _encode(
    dataset: DatasetConfig,
    records: RecordsConfig,
    folder: Path,
    progress: Progress,
    on_report: OnReport | None,
    opened: Dataset,
    images: dict[str, SourceImage],
    known: Collection[str] | None,
) -> None:
    num_images = len(images)
    num_before = 0
    codec = find_codec(records.codec_id, "records.codec")
    reuse = _images_made_before(dataset, records, codec)
    for split, samples in opened.splits.items():

        def tell(num_done: int, _: int, num_before: int = num_before) -> None:
            progress(num_before + num_done, num_images)

        report = encode_split(
            samples,
            opened.classes,
            folder / split,
            dataset=opened.name,
            split=split,
            images_per_record=dataset.images_per_record,
            on_error=records.on_error,
            on_change=records.on_change,
            known=known,
            num_workers=records.num_workers,
            ray_address=records.ray_address if records.engine == "ray" else NO_RAY,
            max_pixels=records.max_pixels,
            reuse=reuse,
            codecs={**ENCODINGS, "pcr": codec},
            fields=opened.fields,
            progress=tell,
        )
        if on_report is not None:
            on_report(split, report)
        num_before += len(samples)
    with suppress(StorageError):  # saves a later comparison, except on a read-only disk
        write_source(folder, dataset, opened, images)


def _images_made_before(
    dataset: DatasetConfig, records: RecordsConfig, codec: ImageCodec
) -> StoredImages | None:
    """Return the records to reuse images from: `records.reuse_from`, or those of another fold; or None."""
    if records.reuse_from is not None:
        return StoredImages(Path(records.reuse_from).expanduser(), codec)
    if records.engine != "local":
        return None
    others = (replace(dataset, fold=fold) for fold in dataset.folds if fold != dataset.fold)
    made = next((folder for other in others if is_finished(folder := _path(other, records))), None)
    if made is None:
        return None
    log.info("reusing encoded images from %s, where it has them", made)
    return StoredImages(made, codec, remedy=f"Delete {made}, and it will be made again when it is needed.")


def _path(dataset: DatasetConfig, records: RecordsConfig) -> Path:
    return Path(records.root) / records_folder(dataset, records)


def is_finished(folder: Path) -> bool:
    """Return whether all indexes exist. They are written last."""
    return all((folder / split / name / INDEX_FILE).exists() for split in SPLITS for name in ENCODINGS)
