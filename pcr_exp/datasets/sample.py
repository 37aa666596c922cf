"""Every dataset as lists of samples with named labels, in three splits."""

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
"""Trained on; looked at by scan policies, probes and tuning; reported."""


class PackedImage(Protocol):
    """An image in a file that holds many, which was cut into its scans before."""

    @property
    def num_bytes(self) -> int:
        """Length of the result of `read_bytes`."""

    def read_bytes(self) -> bytes:
        """The image as a file of its own. Raises OSError."""

    def pieces(self, jpeg: bytes) -> list[bytes]:
        """The result of `read_bytes`, cut as in its file; the end marker (EOI) is in no piece."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One image."""

    id: str
    """Unique in the dataset: the path relative to the dataset's folder, with forward slashes."""
    path: Path
    """The JPEG file, or the file that `packed` lies in."""
    labels: dict[str, int]
    """Named labels -> class index, 0-based."""
    group: str | None = None
    """The name that decides the split, if not the id: images of one group are never on two sides."""
    packed: PackedImage | None = field(default=None, compare=False)
    """The image, if `path` holds more than this one."""
    fields: Mapping[str, Path | bytes] = field(default_factory=dict, compare=False)
    """By name, the file of what travels beside the image, such as its mask, or the bytes."""

    @property
    def file(self) -> Path | PackedImage:
        """The object with `read_bytes`."""
        return self.path if self.packed is None else self.packed


@dataclass(frozen=True, slots=True)
class Dataset:
    """Three splits and what their labels mean. Use `make_dataset`, which divides, checks and orders."""

    name: str
    splits: dict[str, list[Sample]]
    """By name, as in `SPLITS`; `tune` may be empty."""
    classes: dict[str, list[str]]
    """Label name -> class names; a class's index is its position."""
    seen: SeenFiles = field(default_factory=SeenFiles, compare=False)
    fields: dict[str, str] = field(default_factory=dict)
    """Name of each field that every sample has -> its kind, of `config.records.FIELD_KINDS`."""

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
    """Images to be looked at, whatever split they are in. Use `make_images`, which checks and orders."""

    samples: list[Sample]
    classes: dict[str, list[str]]
    """Label name -> class names; a class's index is its position."""
    seen: SeenFiles = field(default_factory=SeenFiles, compare=False)


def open_dataset(config: DatasetConfig) -> Dataset:
    """Read the dataset of these settings.

    Of its training images it has at most `max_train_images`, and as large a part of those that are tuned by.
    A split's order is mixed, so its first samples are a random subset, and a smaller subset is part of every
    larger one. What the reader remarks is logged.

    Raises:
        ConfigError: no such dataset, no such label, or folds without a choice of one.
        DatasetError: the dataset is not there, or not as its publisher lays it out.
    """
    if config.folds and config.fold is None:
        raise ConfigError(
            f"dataset.fold=null, with dataset.num_folds={config.num_folds}: choose the fold that validates, "
            f"dataset.fold=0 to {config.folds[-1]}, or all of them in turn with "
            f"-m dataset.fold={','.join(map(str, config.folds))}."
        )
    dataset: Dataset = build("dataset", config)
    _tell(config, dataset)
    if config.max_train_images is None:
        return dataset
    # As many in proportion: encoding a few training images shall not mean to encode all of tune.
    num_tune = math.ceil(config.max_train_images * config.tune_fraction / (1 - config.tune_fraction))
    kept = {"train": dataset.train[: config.max_train_images], "tune": dataset.tune[:num_tune]}
    return replace(dataset, splits=dataset.splits | kept)


def keep_fields(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """The dataset with these fields beside its images, and no others.

    Raises:
        ConfigError: it does not give one of them.
        DatasetError: one is of no kind that is known, or an image has none.
    """
    if not names and not dataset.fields:
        return dataset
    if unknown := sorted(set(names) - dataset.fields.keys()):
        has = ", ".join(sorted(dataset.fields)) or "none"
        raise ConfigError(
            f"records.fields={list(names)}: {dataset.name} gives no field {unknown[0]!r}; it has {has}. A "
            f"table names the column of each: dataset=table dataset.columns.{unknown[0]}=<column>."
        )
    kinds = {name: dataset.fields[name] for name in sorted(names)}
    for name, kind in kinds.items():
        if kind not in FIELD_KINDS:
            raise DatasetError(
                f"{dataset.name}: the field {name} is of the kind {kind!r}; wanted {', '.join(FIELD_KINDS)}."
            )

    def kept(sample: Sample) -> Sample:
        if lacking := sorted(kinds.keys() - sample.fields.keys()):
            raise DatasetError(
                f"{dataset.name}: {sample.id} has no field {lacking[0]!r}; wanted one for each."
            )
        return replace(sample, fields={name: sample.fields[name] for name in kinds})

    splits = {split: [kept(sample) for sample in samples] for split, samples in dataset.splits.items()}
    return replace(dataset, splits=splits, fields=kinds)


def open_images(config: DatasetConfig) -> LabelledImages:
    """Every image of the dataset of these settings, in its lasting order.

    Of a kind that registers itself in `dataset.images` as well, images that could not be trained on are
    enough: there need be no training split, and no image of every class in each split.

    Raises:
        ConfigError, DatasetError: as `open_dataset`.
    """
    if type(config) in schemas("dataset.images").values():
        images: LabelledImages = build("dataset.images", config)
        _tell(config, images)
        return images
    dataset = open_dataset(config)
    samples = [sample for split in SPLITS for sample in dataset.splits[split]]
    return make_images(config, samples, dataset.classes, dataset.seen)


def _tell(config: DatasetConfig, read: Dataset | LabelledImages) -> None:
    """Log what the reader remarked. Raises ConfigError if there is no such label."""
    for remark in read.seen.all_remarks():
        log.warning("%s", printable(remark))
    if config.label not in read.classes:
        raise ConfigError(
            f"dataset.label={config.label!r}: {config.name} has the labels {', '.join(read.classes)}."
        )


def make_images(
    config: DatasetConfig, samples: Iterable[Sample], classes: dict[str, list[str]], seen: SeenFiles
) -> LabelledImages:
    """Images in their lasting order.

    Raises:
        DatasetError: there is none, an id is there twice, or an image has a label that `classes` does not
            name.
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
    """A dataset in its lasting splits and order.

    Args:
        config: says which shares are held out, by a hash of ids.
        samples: those that may be trained on; if `val` is None, those of val too.
        classes: label name -> class names.
        seen: what was looked at; given remarks on classes that a split lacks.
        val: the publisher's; with folds these images are divided as the others are.
        tune: the publisher's, likewise; None: `tune_fraction` of the samples.
        each_class_trains: a class with no image to train on is an error, not a remark.
        values: labels that stand for numbers or sets, which no split need have all of.
        fields: name -> kind of what every sample has beside its image.

    Raises:
        DatasetError: train or val has no image; an id is there twice; an image has a label that `classes`
            does not name; or a class has no image to train on.
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
            f"{config.name}: the val split has no image, of {sum(map(len, splits.values()))}: {remedy}, or "
            "choose another dataset.split_seed."
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
                    f"{what}: the few that there are were held out. Add images or remove the class; choose "
                    "another dataset.split_seed; or divide them yourself, into train/<class>/ and "
                    "val/<class>/, with dataset.tune_fraction=0."
                )
            remarks.append(f"{what}: it cannot be learned.")
        if unseen := lack["val"]:
            remarks.append(
                f"{config.name}: {_classes(unseen, label)} in val, so that accuracy says nothing of it: "
                f"{remedy}."
            )
        if splits["tune"] and (untuned := lack["tune"]):
            remarks.append(
                f"{config.name}: {_classes(untuned, label)} in tune, so that policies and tuning do not see "
                f"it: add images, or raise dataset.tune_fraction ({config.tune_fraction:g})."
            )
    if config.tune_fraction and not splits["tune"]:
        remarks.append(
            f"{config.name}: the tune split has no image (dataset.tune_fraction={config.tune_fraction:g}, "
            f"{len(splits['train'])} images in train): scan policies that judge by it will refuse."
        )
    return remarks


def _classes(names: list[str], label: str) -> str:
    if len(names) == 1:
        return f"the {label} {names[0]!r} has no image"
    return f"{len(names)} classes of {label!r} ({some(names)}) have no image"


def split_of(group: str, *, val_fraction: float, tune_fraction: float, seed: int) -> str:
    """The split of an image, or of all images of a group, by its name and nothing else.

    So a new image moves no other one. `val_fraction` of many groups are val, and `tune_fraction` of the
    others are tune; each share is decided by bits of its own, so that changing one moves nothing across
    the other's border.
    """
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogateescape")).digest()
    if _share(digest[:8]) < val_fraction:
        return "val"
    return "tune" if _share(digest[8:16]) < tune_fraction else "train"


def fold_of(group: str, num_folds: int, seed: int) -> int:
    """The fold, 0 to `num_folds` - 1, of an image, or of all images of a group, by its name and nothing else.

    By bits of its own, like the shares of `split_of`: what is tuned by is the same share of every fold.
    """
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[16:24], "big") % num_folds


def sort_key(sample_id: str) -> bytes:
    """The sort key of a split: a hash of the id, so that images are mixed, the same everywhere.

    So the first images of a split are a random subset, and a new image leaves the others in their order.
    """
    return hashlib.sha256(sample_id.encode(errors="surrogateescape")).digest()


def holdout(num: int, val_fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices (train, val) of 0..num-1, each in drawn order; one more image moves others.

    Draws what scikit-learn's `train_test_split(test_size=val_fraction, random_state=seed)` draws, which
    is how the PCR release cuts HAM10000 and CelebA-HQ: of one permutation by numpy's legacy generator,
    the first ceil(val_fraction * num) are held out and the rest trained on.
    """
    import numpy as np

    order = np.random.RandomState(seed).permutation(num).tolist()
    num_val = math.ceil(val_fraction * num)
    return order[num_val:], order[:num_val]


def _share(bits: bytes) -> float:
    return int.from_bytes(bits, "big") / 2 ** (8 * len(bits))
