"""A name for what records are made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.datasets.sample import Dataset, Sample
from pcr_exp.records.format import VERSION
from pcr_exp.records.index import RecordIndex


def file_size(path: Path) -> int | None:
    """Bytes in a file; None if it cannot be looked at (reading it will say why)."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def sample_bytes(sample: Sample) -> int | None:
    """Bytes of an image as a file of its own; None if its file cannot be looked at."""
    return file_size(sample.path) if sample.packed is None else sample.packed.num_bytes


def content_key(data: bytes) -> str:
    """16 hex digits of bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def _beside(sample: Sample) -> dict[str, int | str | None]:
    """By name what a sample's fields are: the bytes of a file, or a key of what was given."""
    return {
        name: file_size(source) if isinstance(source, Path) else content_key(source)
        for name, source in sample.fields.items()
    }


def images_key(samples: Sequence[tuple[Sample, int | None]]) -> str:
    """16 hex digits of what the images are: ids, labels and file sizes, in no order and at no place.

    `samples` are pairs with the size of each file.
    """
    rows = sorted(
        json.dumps([sample.id, sample.labels, size], sort_keys=True, separators=(",", ":"))
        for sample, size in samples
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def joint_images_key(indexes: Mapping[str, RecordIndex]) -> str:
    """16 hex digits of what the images of all splits are, from the indexes of their records by split."""
    return _joint({split: index.images for split, index in indexes.items()})


def dataset_images_key(dataset: Dataset) -> str:
    """As `joint_images_key`, of images that no records were made of."""
    return _joint(
        {
            split: images_key([(sample, sample_bytes(sample)) for sample in samples])
            for split, samples in dataset.splits.items()
        }
    )


def _joint(keys: Mapping[str, str | None]) -> str:
    return hashlib.sha256(json.dumps(sorted(keys.items())).encode()).hexdigest()[:16]


def fingerprint(
    samples: Sequence[tuple[Sample, int | None]],
    classes: dict[str, list[str]],
    *,
    dataset: str,
    split: str,
    images_per_record: int,
    scans: Mapping[str, str] = SCANS,
    fields: Mapping[str, str] | None = None,
) -> str:
    """16 hex digits of everything that decides which bytes an encode writes, short of the pixels themselves.

    `samples` are pairs with the size of each file; `scans` names the codec of each encoding, `fields`
    the kind of each field that the samples have.
    File sizes stand in for the contents: reading every image to find an encode done would take as long as it.
    """
    digest = hashlib.sha256()
    settings: list[Any] = [VERSION, dict(scans), dataset, split, images_per_record, classes]
    rows: Iterable[list[Any]] = ([sample.id, sample.labels, size] for sample, size in samples)
    if fields:  # encodes without them are called what they were
        settings.append(dict(fields))
        rows = ([sample.id, sample.labels, size, _beside(sample)] for sample, size in samples)
    for item in (settings, *rows):
        digest.update(json.dumps(item, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()[:16]
