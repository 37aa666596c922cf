"""What every dataset becomes: lists of samples with named labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcr_exp.errors import DatasetError

ORDER_SEED = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture."""

    id: str
    """Unique in the split: the path relative to the dataset's root, with forward slashes."""
    path: Path
    """The JPEG file."""
    labels: dict[str, int]
    """Named labels -> class index, 0-based."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Two splits and what their labels mean. Use `make_dataset`, which checks and orders."""

    name: str
    train: list[Sample]
    val: list[Sample]
    classes: dict[str, list[str]]
    """Label name -> class names; a class's index is its position."""


def make_dataset(
    name: str, train: Iterable[Sample], val: Iterable[Sample], classes: dict[str, list[str]]
) -> Dataset:
    """A dataset in its lasting order.

    Each split is sorted by id and then shuffled once with a fixed seed, so that every record of
    consecutive samples is mixed in class, on every machine alike.

    Raises:
        DatasetError: a split has no picture, an id twice, or a label that `classes` does not name.
    """
    splits = {"train": list(train), "val": list(val)}
    for split, samples in splits.items():
        _check(name, split, samples, classes)
    return Dataset(name, _mixed(splits["train"]), _mixed(splits["val"]), classes)


def _mixed(samples: list[Sample]) -> list[Sample]:
    ordered = sorted(samples, key=lambda sample: sample.id)
    order = np.random.default_rng(ORDER_SEED).permutation(len(ordered))
    return [ordered[i] for i in order]


def _check(name: str, split: str, samples: list[Sample], classes: dict[str, list[str]]) -> None:
    if not samples:
        raise DatasetError(f"{name}: the {split} split has no picture.")
    twice = [id_ for id_, count in Counter(sample.id for sample in samples).items() if count > 1]
    if twice:
        raise DatasetError(f"{name}: the {split} split lists {twice[0]} twice ({len(twice)} such ids).")
    sizes = {label: len(names) for label, names in classes.items()}
    for sample in samples:
        named = sample.labels.keys() == sizes.keys()
        if not named or not all(0 <= sample.labels[label] < size for label, size in sizes.items()):
            raise DatasetError(
                f"{name}: {sample.id} has labels {sample.labels}; wanted one class index for each of {sizes}."
            )
