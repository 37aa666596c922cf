"""Settings that all datasets share: images, labels, and how the papers train on them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from omegaconf import MISSING

from pcr_exp.config.check import (
    INNER_SHARE,
    PATH,
    SHARE,
    Bound,
    at_least,
    check_fields,
    or_null,
    pair,
    require,
)

_WORD = r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?"
_NAME = Bound(
    lambda name: re.fullmatch(_WORD, name) is not None,
    "letters a to z and A to Z, digits and _, with . and - only in the middle, because it is used in file "
    "names",
)
_FEW = Bound(lambda share: 0 <= share < 1, "a share of the training images, 0 or more and below 1")

SEPARATOR = ";"
"""Separates the class names in a label that combines several classes; see records/FORMAT.md."""


@dataclass(kw_only=True, slots=True)
class AugmentConfig:
    """Crops and flips of a decoded image before it enters a batch."""

    crop_scale: list[float] = field(default_factory=lambda: [0.08, 1.0])
    """Random resized crop: minimum and maximum share of the image's area (Szegedy et al. 2015)."""
    crop_ratio: list[float] = field(default_factory=lambda: [0.75, 4 / 3])
    """Minimum and maximum ratio of a crop's width to its height."""
    horizontal_flip: bool = True
    """Mirror half of the training images."""
    eval_crop_fraction: Annotated[float, SHARE] = 0.875
    """Validation: the short side becomes image_size / fraction, then a centre crop of image_size."""

    def __post_init__(self) -> None:
        low, high = pair("dataset.augment.crop_scale", self.crop_scale)
        require(0 < low <= high <= 1, "dataset.augment.crop_scale", self.crop_scale, "0 < low <= high <= 1")
        low, high = pair("dataset.augment.crop_ratio", self.crop_ratio)
        require(0 < low <= high, "dataset.augment.crop_ratio", self.crop_ratio, "0 < low <= high")
        check_fields(self, "dataset.augment")


@dataclass(kw_only=True, slots=True)
class PaperConfig:
    """How the PCR paper trains on a dataset (`training=paper model=paper`); sources are in each YAML file.

    The defaults are the paper's ImageNet settings, for datasets that the paper does not use.
    """

    model: str = "resnet18"
    """Option of the group `model`."""
    pretrained: bool = False
    """Fine-tune from ImageNet weights."""
    epochs: int = 90
    """Passes over the training images."""
    learning_rate: float = 0.1
    """Learning rate per 256 images of the global batch."""
    lr_milestones: list[int] = field(default_factory=lambda: [30, 60])
    """Epochs at which the learning rate is divided by ten."""
    image_size: int = 160
    """Side in pixels of the training crops."""
    eval_image_size: int = 224
    """Side in pixels of the evaluation crops."""


@dataclass(kw_only=True, slots=True)
class DatasetConfig:
    """Images and label, and how the paper stores and trains on them."""

    name: Annotated[str, _NAME] = MISSING
    """A word of your choice, used in the names of runs, records and quality files. It does not select the
    kind of dataset; the option of the group `dataset` does."""
    root: Annotated[str | None, PATH] = None
    """Folder in the dataset's official layout; `~` is your home."""
    label: str = MISSING
    """Name of the label to train on."""
    images_per_record: Annotated[int, at_least(1)] = MISSING
    """Images per record; one request reads one record."""
    targets: dict[str, float] = field(default_factory=dict)
    """Target in (0, 1] that time to accuracy is measured to, by name of a task's primary metric (such as
    top1). Declare it before any run."""
    tune_fraction: Annotated[float, _FEW] = 0.1
    """Share of the training images held out from training, for scan policies, probes and tuning (0: none;
    whatever needs them then refuses to start)."""
    split_seed: int = 42
    """Seed of the split. A hash of it and an image's id decides, so that a new image moves no other."""
    num_folds: Annotated[int | None, or_null(at_least(2), "null or 2 or more")] = None
    """Number of cross-validation folds (null: none). All images, including the publisher's validation images,
    are divided by a hash of their ids as above, or of their groups, such as lesions."""
    fold: int | None = None
    """Index of the validation fold, from 0. The rest is for training, and tune_fraction of it for tuning."""
    max_train_images: Annotated[int | None, or_null(at_least(1))] = None
    """Train on a random subset of this many images (null: all). The training records contain only these."""
    max_tune_images: Annotated[int | None, or_null(at_least(1))] = None
    """As max_val_images, for the tune split."""
    max_val_images: Annotated[int | None, or_null(at_least(1))] = None
    """Validate on a random subset of this many images (null: all). All images are encoded, so that any number
    is available later."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    paper: PaperConfig = field(default_factory=PaperConfig)

    def __post_init__(self) -> None:
        check_fields(self, "dataset")
        for metric, target in self.targets.items():
            require(0 < target <= 1, f"dataset.targets.{metric}", target, "a share in (0, 1]")
        folds = self.folds
        wanted = f"null or 0 to {folds[-1]}" if folds else "null, because dataset.num_folds is null"
        require(self.fold is None or self.fold in folds, "dataset.fold", self.fold, wanted)

    @property
    def folds(self) -> range:
        """All folds; empty without cross-validation."""
        return range(self.num_folds or 0)


@dataclass(kw_only=True, slots=True)
class OwnSplitConfig(DatasetConfig):
    """A dataset without an official validation split: a share is held out, chosen by image id."""

    val_fraction: Annotated[float, INNER_SHARE] = 0.2
    """Share of the images used for validation, chosen by a hash of their ids."""


def folder_name(root: str | None, table: str | None = None) -> str:
    """Return a default name for a folder of images: the folder's own, in characters that suit file names.

    Without a `root`, use the name of the folder that contains the `table` of images.
    """
    folder = root if root is not None or table is None else str(Path(table).expanduser().parent)
    base = "" if folder is None else Path(folder).expanduser().resolve().name
    return re.sub(r"[^A-Za-z0-9_]+", "_", base).strip("_") or "folder"
