"""Keys that identify what records are made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.datasets.sample import Dataset, Sample
from pcr_exp.datasets.seen import State, file_state
from pcr_exp.records.format import VERSION
from pcr_exp.records.index import RecordIndex


def file_size(path: Path) -> int | None:
    """Size of a file in bytes; None if it is not accessible (reading it later reports the reason)."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def sample_bytes(sample: Sample) -> int | None:
    """Size of an image as a file of its own, in bytes; None if its file is not accessible."""
    return file_size(sample.path) if sample.packed is None else sample.packed.num_bytes


def states_key(samples: Iterable[Sample]) -> str:
    """Return 16 hex digits that change with the size or modification time of any file of the samples."""
    states: list[State | None] = []
    for sample in samples:
        for path in (sample.path, *(source for source in sample.fields.values() if isinstance(source, Path))):
            try:
                states.append(file_state(path))
            except OSError:  # reading it later reports the reason
                states.append(None)
    return content_key(json.dumps(states).encode())


def content_key(data: bytes) -> str:
    """First 16 hex digits of the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def _beside(sample: Sample) -> dict[str, int | str | None]:
    """Field name -> file size in bytes, or the content key of a field that is given as bytes."""
    return {
        name: file_size(source) if isinstance(source, Path) else content_key(source)
        for name, source in sample.fields.items()
    }


def images_key(samples: Sequence[tuple[Sample, int | None]]) -> str:
    """Return 16 hex digits that identify images by ids, labels and file sizes, not by order or location.

    `samples` pairs each sample with its file size in bytes.
    """
    rows = sorted(
        json.dumps([sample.id, sample.labels, size], sort_keys=True, separators=(",", ":"))
        for sample, size in samples
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def joint_images_key(indexes: Mapping[str, RecordIndex]) -> str:
    """Return 16 hex digits that identify the images of all splits; `indexes` are by split."""
    return _joint({split: index.images for split, index in indexes.items()})


def dataset_images_key(dataset: Dataset) -> str:
    """Return the same key as `joint_images_key`, computed from a dataset's files instead of records."""
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
    """Return 16 hex digits that identify everything that determines an encode's bytes, except the pixels.

    `samples` pairs each sample with its file size in bytes. `scans` names the codec of each encoding, and
    `fields` the kind of each field of the samples.
    File sizes stand in for contents: reading every image would take as long as encoding again.
    """
    digest = hashlib.sha256()
    settings: list[Any] = [VERSION, dict(scans), dataset, split, images_per_record, classes]
    rows: Iterable[list[Any]] = ([sample.id, sample.labels, size] for sample, size in samples)
    if fields:  # fingerprints without fields stay as in earlier versions
        settings.append(dict(fields))
        rows = ([sample.id, sample.labels, size, _beside(sample)] for sample, size in samples)
    for item in (settings, *rows):
        digest.update(json.dumps(item, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()[:16]
