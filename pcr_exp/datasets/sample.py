"""Datasets as lists of samples with named labels, in three splits."""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pcr_exp.config.components import build, schemas
from pcr_exp.config.dataset import DatasetConfig, OwnSplitConfig
from pcr_exp.config.records import FIELD_KINDS
from pcr_exp.datasets.seen import SeenFiles, some
from pcr_exp.errors import ConfigError, DatasetError, printable

log = logging.getLogger(__name__)

SPLITS = ("train", "tune", "val")
"""For training; for scan policies, probes and tuning; for reporting."""


class PackedImage(Protocol):
    """An image stored with others in one file, already divided into scans."""

    @property
    def num_bytes(self) -> int:
        """Length of the result of `read_bytes`."""

    def read_bytes(self) -> bytes:
        """Return the image as a file of its own. Raises OSError."""

    def pieces(self, jpeg: bytes) -> list[bytes]:
        """Split the result of `read_bytes` as in its file. No piece contains the end marker (EOI)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One image."""

    id: str
    """Unique in the dataset: the path relative to the dataset's folder, with forward slashes."""
    path: Path
    """The JPEG file, or the file that contains `packed`."""
    labels: dict[str, int]
    """Label name -> class index, 0-based."""
    group: str | None = None
    """Name that decides the split instead of the id. Images of one group are always in the same split."""
    packed: PackedImage | None = field(default=None, compare=False)
    """The image, if `path` contains more than this one."""
    fields: Mapping[str, Path | bytes] = field(default_factory=dict, compare=False)
    """Files or bytes stored with the image, such as its mask, by field name."""

    @property
    def file(self) -> Path | PackedImage:
        """The object whose `read_bytes` returns the image."""
        return self.path if self.packed is None else self.packed


@dataclass(frozen=True, slots=True)
class Dataset:
    """Three splits and the meanings of labels. Made by `make_dataset`, which splits, checks and sorts."""

    name: str
    splits: dict[str, list[Sample]]
    """Samples by split name, as in `SPLITS`; `tune` may be empty."""
    classes: dict[str, list[str]]
    """Label name -> class names; the index of a class is its position."""
    seen: SeenFiles = field(default_factory=SeenFiles, compare=False)
    fields: dict[str, str] = field(default_factory=dict)
    """Field name -> kind, of `config.records.FIELD_KINDS`, for fields that every sample has."""

    @property
    def train(self) -> list[Sample]:
        return self.splits["train"]

    @property
    def tune(self) -> list[Sample]:
        return self.splits["tune"]

    @property
    def val(self) -> list[Sample]:
        return self.splits["val"]


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images to inspect, independent of splits. Made by `make_images`, which checks and sorts."""

    samples: list[Sample]
    classes: dict[str, list[str]]
    """Label name -> class names; the index of a class is its position."""
    seen: SeenFiles = field(default_factory=SeenFiles, compare=False)


def open_dataset(config: DatasetConfig) -> Dataset:
    """Read the dataset of these settings.

    It has at most `max_train_images` training images, and then proportionally many tuning images. Each split
    is in pseudo-random order, so its first samples are a random subset, and a smaller subset is part of every
    larger one. The reader's remarks are logged.

    Raises:
        ConfigError: there is no such dataset or label, or no fold was chosen.
        DatasetError: the dataset is missing, or does not have its publisher's layout.
    """
    if config.folds and config.fold is None:
        raise ConfigError(
            f"dataset.fold=null, with dataset.num_folds={config.num_folds}: choose the validation fold, "
            f"dataset.fold=0 to {config.folds[-1]}, or run all of them in turn with "
            f"-m dataset.fold={','.join(map(str, config.folds))}."
        )
    dataset: Dataset = build("dataset", config)
    _log_counts(config, dataset)
    if config.max_train_images is None:
        return dataset
    # In proportion, so that a few training images do not require all of tune to be encoded.
    num_tune = math.ceil(config.max_train_images * config.tune_fraction / (1 - config.tune_fraction))
    kept = {"train": dataset.train[: config.max_train_images], "tune": dataset.tune[:num_tune]}
    return replace(dataset, splits=dataset.splits | kept)


def keep_fields(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """Return the dataset with only these fields.

    Raises:
        ConfigError: the dataset does not have one of them.
        DatasetError: one is of an unknown kind, or missing for an image.
    """
    if not names and not dataset.fields:
        return dataset
    if unknown := sorted(set(names) - dataset.fields.keys()):
        has = ", ".join(sorted(dataset.fields)) or "none"
        raise ConfigError(
            f"records.fields={list(names)}: {dataset.name} has no field {unknown[0]!r}; it has {has}. "
            f"With a table, name the column: dataset=table dataset.columns.{unknown[0]}=<column>."
        )
    kinds = {name: dataset.fields[name] for name in sorted(names)}
    for name, kind in kinds.items():
        if kind not in FIELD_KINDS:
            raise DatasetError(
                f"{dataset.name}: the field {name} has the kind {kind!r}; wanted {', '.join(FIELD_KINDS)}."
            )

    def kept(sample: Sample) -> Sample:
        if lacking := sorted(kinds.keys() - sample.fields.keys()):
            raise DatasetError(
                f"{dataset.name}: {sample.id} has no field {lacking[0]!r}; wanted one for every image."
            )
        return replace(sample, fields={name: sample.fields[name] for name in kinds})

    splits = {split: [kept(sample) for sample in samples] for split, samples in dataset.splits.items()}
    return replace(dataset, splits=splits, fields=kinds)


def open_images(config: DatasetConfig) -> LabelledImages:
    """Return every image of the dataset of these settings, in stable order.

    Datasets that also register in `dataset.images` need not be trainable: they may lack a training split, or
    images of every class in each split.

    Raises:
        ConfigError, DatasetError: as in `open_dataset`.
    """
    if type(config) in schemas("dataset.images").values():
        images: LabelledImages = build("dataset.images", config)
        _log_counts(config, images)
        return images
    dataset = open_dataset(config)
    samples = [sample for split in SPLITS for sample in dataset.splits[split]]
    return make_images(config, samples, dataset.classes, dataset.seen)


def _log_counts(config: DatasetConfig, read: Dataset | LabelledImages) -> None:
    """Log the reader's remarks. Raises ConfigError if the label does not exist."""
    for remark in read.seen.all_remarks():
        log.warning("%s", printable(remark))
    if config.label not in read.classes:
        raise ConfigError(
            f"dataset.label={config.label!r}: {config.name} has the labels {', '.join(read.classes)}."
        )


def make_images(
    config: DatasetConfig, samples: Iterable[Sample], classes: dict[str, list[str]], seen: SeenFiles
) -> LabelledImages:
    """Return images in stable order.

    Raises:
        DatasetError: there is no image, an id occurs twice, or an image has a label that is not in `classes`.
    """
    ordered = sorted(samples, key=lambda sample: sort_key(sample.id))
    if not ordered:
        raise DatasetError(f"{config.name}: there is no image in {config.root}.")
    _check_samples(config.name, ordered, classes)
    return LabelledImages(ordered, classes, seen)


def make_dataset(
    config: DatasetConfig,
    samples: Iterable[Sample],
    classes: dict[str, list[str]],
    seen: SeenFiles,
    *,
    val: Iterable[Sample] | None = None,
    tune: Iterable[Sample] | None = None,
    each_class_trains: bool = False,
    values: Collection[str] = (),
    fields: Mapping[str, str] | None = None,
) -> Dataset:
    """Return a dataset with stable splits and order.

    Args:
        config: Sets the shares that are held out, by a hash of ids.
        samples: Images for training, and for val too if `val` is None.
        classes: Label name -> class names.
        seen: Files that were read; gets remarks on classes that a split lacks.
        val: The publisher's validation images. With folds, they are divided like all others.
        tune: The publisher's tuning images, likewise. None: `tune_fraction` of the samples.
        each_class_trains: A class without training images is an error, not a remark.
        values: Labels for numbers or sets, whose values need not occur in every split.
        fields: Field name -> kind, for fields that every sample has.

    Raises:
        DatasetError: train or val has no image; an id occurs twice; an image has a label that is not in
            `classes`; or a class has no training image (`each_class_trains`).
    """
    own_fraction = config.val_fraction if isinstance(config, OwnSplitConfig) and val is None else 0.0
    remedy = (
        f"add images, or raise dataset.val_fraction ({own_fraction:g})"
        if own_fraction
        else "add images to val"
    )
    if config.num_folds is not None:
        samples, val, tune, own_fraction = [*samples, *(val or ()), *(tune or ())], None, None, 0.0
        remedy = f"add images, or lower dataset.num_folds ({config.num_folds})"
    splits: dict[str, list[Sample]] = {split: [] for split in SPLITS}
    splits["val"] += val or ()
    splits["tune"] += tune or ()
    tune_fraction = config.tune_fraction if tune is None else 0.0
    for sample in samples:
        group = sample.group or sample.id
        split = split_of(
            group, val_fraction=own_fraction, tune_fraction=tune_fraction, seed=config.split_seed
        )
        if (
            config.num_folds is not None
            and fold_of(group, config.num_folds, config.split_seed) == config.fold
        ):
            split = "val"
        splits[split].append(sample)
    _check(config.name, splits, classes)
    if not splits["val"]:
        raise DatasetError(
            f"{config.name}: the val split has no image ({sum(map(len, splits.values()))} in all): {remedy}, "
            "or choose another dataset.split_seed."
        )
    named = {label: names for label, names in classes.items() if label not in values}
    seen.remarks += _remarks_on_classes(config, splits, named, remedy, each_class_trains=each_class_trains)
    ordered = {
        split: sorted(chosen, key=lambda sample: sort_key(sample.id)) for split, chosen in splits.items()
    }
    return Dataset(config.name, ordered, classes, seen, dict(fields or {}))


def _check(name: str, splits: dict[str, list[Sample]], classes: dict[str, list[str]]) -> None:
    if not splits["train"]:
        raise DatasetError(
            f"{name}: the train split has no image: {len(splits['tune'])} are in tune, "
            f"{len(splits['val'])} in val. Add images, or hold out less (dataset.tune_fraction)."
        )
    _check_samples(name, [sample for chosen in splits.values() for sample in chosen], classes)


def _check_samples(name: str, samples: Sequence[Sample], classes: dict[str, list[str]]) -> None:
    if len({sample.id for sample in samples}) < len(samples):
        counts = Counter(sample.id for sample in samples)
        twice = [id_ for id_, count in counts.items() if count > 1]
        raise DatasetError(f"{name}: {twice[0]} is listed twice ({len(twice)} such ids).")
    sizes = {label: len(names) for label, names in classes.items()}
    for sample in samples:
        named = sample.labels.keys() == sizes.keys()
        if not named or not all(0 <= sample.labels[label] < size for label, size in sizes.items()):
            raise DatasetError(
                f"{name}: {sample.id} has labels {sample.labels}; wanted one class index for each of {sizes}."
            )


def _remarks_on_classes(
    config: DatasetConfig,
    splits: dict[str, list[Sample]],
    classes: dict[str, list[str]],
    remedy: str,
    *,
    each_class_trains: bool,
) -> list[str]:
    remarks = []
    for label, names in classes.items():
        has = {split: {sample.labels[label] for sample in chosen} for split, chosen in splits.items()}
        there = set().union(*has.values())
        lack = {split: [names[i] for i in sorted(there - has[split])] for split in SPLITS}
        if untrained := lack["train"]:
            what = f"{config.name}: {_classes(untrained, label)} to train on"
            if each_class_trains:
                raise DatasetError(
                    f"{what}: all of its images were held out. Add images or remove the class; choose "
                    "another dataset.split_seed; or split the images yourself, into train/<class>/ and "
                    "val/<class>/, with dataset.tune_fraction=0."
                )
            remarks.append(f"{what}: it cannot be learned.")
        if unseen := lack["val"]:
            remarks.append(
                f"{config.name}: {_classes(unseen, label)} in val, so accuracy says nothing about it: "
                f"{remedy}."
            )
        if splits["tune"] and (untuned := lack["tune"]):
            remarks.append(
                f"{config.name}: {_classes(untuned, label)} in tune, so policies and tuning do not see "
                f"it: add images, or raise dataset.tune_fraction ({config.tune_fraction:g})."
            )
    if config.tune_fraction and not splits["tune"]:
        remarks.append(
            f"{config.name}: the tune split has no image (dataset.tune_fraction={config.tune_fraction:g}, "
            f"{len(splits['train'])} images in train): scan policies that need it will stop with an error."
        )
    return remarks


def _classes(names: list[str], label: str) -> str:
    if len(names) == 1:
        return f"the {label} {names[0]!r} has no image"
    return f"{len(names)} classes of {label!r} ({some(names)}) have no image"


def split_of(group: str, *, val_fraction: float, tune_fraction: float, seed: int) -> str:
    """Return the split of an image, or of all images of a group, which depends only on the name.

    A new image therefore moves no other one. Of many groups, `val_fraction` are val, and `tune_fraction` of
    the others are tune. Each share is decided by separate bits, so that changing one share moves no image
    across the other's border.
    """
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogateescape")).digest()
    if _share(digest[:8]) < val_fraction:
        return "val"
    return "tune" if _share(digest[8:16]) < tune_fraction else "train"


def fold_of(group: str, num_folds: int, seed: int) -> int:
    """Return the fold, 0 to `num_folds` - 1, of an image or of all images of a group, by its name alone.

    It uses separate bits, like the shares of `split_of`, so that tune is the same share of every fold.
    """
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[16:24], "big") % num_folds


def sort_key(sample_id: str) -> bytes:
    """Return a split's sort key: a hash of the id, which mixes images in the same way everywhere.

    The first images of a split are therefore a random subset, and a new image leaves the others in order.
    """
    return hashlib.sha256(sample_id.encode(errors="surrogateescape")).digest()


def holdout(num: int, val_fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Return indices (train, val) of 0..num-1, each in drawn order. One more image moves others.

    They equal those of scikit-learn's `train_test_split(test_size=val_fraction, random_state=seed)`, which
    the PCR release uses for HAM10000 and CelebA-HQ: in a permutation by numpy's legacy generator, the first
    ceil(val_fraction * num) are held out and the rest trained on.
    """
    import numpy as np

    order = np.random.RandomState(seed).permutation(num).tolist()
    num_val = math.ceil(val_fraction * num)
    return order[num_val:], order[:num_val]


def _share(bits: bytes) -> float:
    return int.from_bytes(bits, "big") / 2 ** (8 * len(bits))
