"""Opening a dataset by its configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pcr_exp.config.dataset import DATASET_SCHEMAS, DatasetConfig
from pcr_exp.datasets import cars, celebahq, folder, ham10000, imagenet, photos
from pcr_exp.datasets.sample import Dataset
from pcr_exp.errors import ConfigError

READERS: dict[str, Callable[[Any], Dataset]] = {
    "imagenet": imagenet.read,
    "ham10000": ham10000.read,
    "cars": cars.read,
    "celebahq": celebahq.read,
    "folder": folder.read,
    "photos": photos.read,
}


def open_dataset(config: DatasetConfig) -> Dataset:
    """Read the dataset that `config.name` names, and keep at most `max_train_images` and `max_val_images`.

    A split's order is a seeded shuffle, so its first samples are a random subset, and a smaller subset is
    part of every larger one.

    Raises:
        ConfigError: no such dataset, settings of another dataset, or no such label.
        DatasetError: the dataset is not there, or not as its publisher lays it out.
    """
    if config.name not in READERS:
        raise ConfigError(f"dataset.name={config.name!r}: wanted one of {', '.join(READERS)}.")
    schema = DATASET_SCHEMAS[config.name]
    if not isinstance(config, schema):
        raise ConfigError(
            f"dataset.name={config.name!r} with the settings of {type(config).__name__}: "
            f"choose it with dataset={config.name}, which brings a {schema.__name__}."
        )
    dataset = READERS[config.name](config)
    if config.label not in dataset.classes:
        raise ConfigError(
            f"dataset.label={config.label!r}: {config.name} has the labels {', '.join(dataset.classes)}."
        )
    return replace(
        dataset, train=dataset.train[: config.max_train_images], val=dataset.val[: config.max_val_images]
    )
