"""From a dataset's configuration to its records on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.records import RecordsConfig, records_name
from pcr_exp.datasets.catalog import open_dataset
from pcr_exp.errors import ConfigError, StorageError
from pcr_exp.records.atomic import write_atomic
from pcr_exp.records.encode import EncodeReport, Progress, encode_split
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.writer import ENCODINGS

SPLITS = ("train", "val")
_SOURCE_FILE = "source.json"


def records_folder(dataset: DatasetConfig, records: RecordsConfig) -> str:  # noqa: ARG001
    """The folder of a dataset's records below `records.root`; `<split>/<encoding>/` lie in it."""
    return records_name(dataset)


def prepare_records(
    dataset: DatasetConfig,
    records: RecordsConfig,
    progress: Progress | None = None,
    on_report: Callable[[str, EncodeReport], None] | None = None,
) -> Path:
    """Encode both splits, unless that is done already: then the dataset itself need not be there.

    If `dataset.root` is another folder than the records were made from, its files are compared with theirs
    by name, label and size: the records' name does not hold that folder, so that both can move.

    Args:
        dataset: what to encode.
        records: where to, and how.
        progress: told (images done, images in all), over both splits.
        on_report: told (split, report) after each split that was looked at.

    Returns:
        The folder that holds `train/` and `val/`.

    Raises:
        ConfigError: `records.root` is not a local folder.
        DatasetError, ImageError, RecordError, StorageError: as `open_dataset` and `encode_split` raise them.
    """
    if "://" in records.root:
        raise ConfigError(
            f"records.root={records.root!r}: records are written to a local folder. Prepare them with "
            "a local records.root and copy that folder to it; then train with records.auto_prepare=false."
        )
    folder = Path(records.root) / records_folder(dataset, records)
    if _is_finished(folder) and not _is_elsewhere(dataset, folder):
        return folder
    _encode(dataset, records, folder, progress, on_report)
    with suppress(StorageError):  # a note that spares a comparison; records on a read-only disk do without
        write_atomic(folder / _SOURCE_FILE, [json.dumps({"root": _resolve(dataset.root)}).encode()])
    return folder


def _encode(
    dataset: DatasetConfig,
    records: RecordsConfig,
    folder: Path,
    progress: Progress | None,
    on_report: Callable[[str, EncodeReport], None] | None,
) -> None:
    opened = open_dataset(dataset)
    num_images = len(opened.train) + len(opened.val)
    num_before = 0
    for split, samples in zip(SPLITS, (opened.train, opened.val), strict=True):

        def tell(num_done: int, _: int, num_before: int = num_before) -> None:
            if progress is not None:
                progress(num_before + num_done, num_images)

        report = encode_split(
            samples,
            opened.classes,
            folder / split,
            dataset=opened.name,
            split=split,
            images_per_record=dataset.images_per_record,
            on_error=records.on_error,
            num_workers=records.num_workers,
            max_pixels=records.max_pixels,
            progress=tell,
        )
        if on_report is not None:
            on_report(split, report)
        num_before += len(samples)


def _is_finished(folder: Path) -> bool:
    return all((folder / split / name / INDEX_FILE).exists() for split in SPLITS for name in ENCODINGS)


def _is_elsewhere(dataset: DatasetConfig, folder: Path) -> bool:
    """`dataset.root` is there, but the records were made from another folder."""
    if dataset.root is None or not Path(dataset.root).is_dir():
        return False
    try:
        made_from = json.loads((folder / _SOURCE_FILE).read_bytes())["root"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return bool(made_from != _resolve(dataset.root))


def _resolve(root: str | None) -> str | None:
    return None if root is None else str(Path(root).resolve())
