"""Opening a dataset by its configuration."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pcr_exp.config.dataset import DatasetConfig, kind_of
from pcr_exp.datasets import cars, celebahq, folder, ham10000, imagenet, photos
from pcr_exp.datasets.sample import Dataset
from pcr_exp.errors import ConfigError

log = logging.getLogger(__name__)

READERS: dict[str, Callable[[Any], Dataset]] = {
    "imagenet": imagenet.read,
    "ham10000": ham10000.read,
    "cars": cars.read,
    "celebahq": celebahq.read,
    "folder": folder.read,
    "photos": photos.read,
}


def open_dataset(config: DatasetConfig) -> Dataset:
    """Read the dataset of these settings; of its training images, at most `max_train_images`, and as large a
    part of those that are tuned by.

    A split's order is mixed, so its first samples are a random subset, and a smaller subset is part of every
    larger one. What the reader remarks is logged.

    Raises:
        ConfigError: no such dataset, or no such label.
        DatasetError: the dataset is not there, or not as its publisher lays it out.
    """
    dataset = READERS[kind_of(config)](config)
    for remark in dataset.looked.all_remarks():
        log.warning("%s", remark)
    if config.label not in dataset.classes:
        raise ConfigError(
            f"dataset.label={config.label!r}: {config.name} has the labels {', '.join(dataset.classes)}."
        )
    if config.max_train_images is None:
        return dataset
    # As many in proportion: encoding a few training images shall not mean to encode all of tune.
    num_tune = math.ceil(config.max_train_images * config.tune_fraction / (1 - config.tune_fraction))
    kept = {"train": dataset.train[: config.max_train_images], "tune": dataset.tune[:num_tune]}
    return replace(dataset, splits=dataset.splits | kept)
