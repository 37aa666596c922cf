"""Settings that all datasets share: the images, the label, and how the papers train on them."""

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
    "a word of the letters a to z and A to Z, digits, and . _ - inside it, as it names files",
)
_FEW = Bound(lambda share: 0 <= share < 1, "a share of the training images, 0 or more and below 1")

SEPARATOR = ";"
"""Between the names in a class's name that stands for several: see records/FORMAT.md."""


@dataclass(kw_only=True, slots=True)
class AugmentConfig:
    """Crops and flips of a decoded image before it enters a batch."""

    crop_scale: list[float] = field(default_factory=lambda: [0.08, 1.0])
    """Random-resized-crop: smallest and largest share of the image's area (Szegedy et al. 2015)."""
    crop_ratio: list[float] = field(default_factory=lambda: [0.75, 4 / 3])
    """Smallest and largest ratio of a crop's width to its height."""
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
    """How the PCR paper trains on a dataset (`training=paper model=paper`); sources in each YAML.

    The defaults are its settings for ImageNet, for datasets that it does not have.
    """

    model: str = "resnet18"
    """Option of the group `model`."""
    pretrained: bool = False
    """Fine-tune from ImageNet weights."""
    epochs: int = 90
    """Passes over the training images."""
    learning_rate: float = 0.1
    """Per 256 images of global batch."""
    lr_milestones: list[int] = field(default_factory=lambda: [30, 60])
    """Epochs at which the rate falls to a tenth."""
    image_size: int = 160
    """Pixels of a side of the crops that are trained on."""
    eval_image_size: int = 224
    """Pixels of a side of the crops that are evaluated."""


@dataclass(kw_only=True, slots=True)
class DatasetConfig:
    """Which images, which label, and how the paper stores and trains on them."""

    name: Annotated[str, _NAME] = MISSING
    """A word of your choice, in the names of runs, records and quality files. The kind of dataset is another
    matter: that is the option of the group `dataset`."""
    root: Annotated[str | None, PATH] = None
    """Folder in the dataset's official layout; `~` is your home."""
    label: str = MISSING
    """The named label that is trained on."""
    images_per_record: Annotated[int, at_least(1)] = MISSING
    """Images of a record, which one request reads."""
    targets: dict[str, float] = field(default_factory=dict)
    """By the name of a task's headline (such as top1), the value in (0, 1] that times are measured to;
    declared before any run."""
    tune_fraction: Annotated[float, _FEW] = 0.1
    """Share of the training images that is never trained on: what scan policies, probes and tuning look at
    (0: none is held out, and what needs them refuses)."""
    split_seed: int = 42
    """Which images are held out: a hash of this and an image's id, so that a new image moves no other."""
    num_folds: Annotated[int | None, or_null(at_least(2), "null or 2 or more")] = None
    """Cross-validation: all images, those that the publisher reports on among them, are divided into so many
    folds, by a hash of ids as above or of groups, such as lesions (null: none)."""
    fold: int | None = None
    """The fold, from 0, that validates; the others are trained on, and tune_fraction of them tuned by."""
    max_train_images: Annotated[int | None, or_null(at_least(1))] = None
    """Train on this many images only, a random subset (null: all); records are made of these alone."""
    max_tune_images: Annotated[int | None, or_null(at_least(1))] = None
    """As max_val_images, of the images that are tuned by."""
    max_val_images: Annotated[int | None, or_null(at_least(1))] = None
    """Look at this many images only, a random subset (null: all). All are encoded, so that any number is
    at hand."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    paper: PaperConfig = field(default_factory=PaperConfig)

    def __post_init__(self) -> None:
        check_fields(self, "dataset")
        for metric, target in self.targets.items():
            require(0 < target <= 1, f"dataset.targets.{metric}", target, "a share in (0, 1]")
        folds = self.folds
        wanted = f"null or 0 to {folds[-1]}" if folds else "null, as dataset.num_folds is null"
        require(self.fold is None or self.fold in folds, "dataset.fold", self.fold, wanted)

    @property
    def folds(self) -> range:
        """All folds; empty where there are none."""
        return range(self.num_folds or 0)


@dataclass(kw_only=True, slots=True)
class OwnSplitConfig(DatasetConfig):
    """A dataset whose publisher does not say which images validate: a share is held out, by their ids."""

    val_fraction: Annotated[float, INNER_SHARE] = 0.2
    """Share of the images that validates, chosen by a hash of their ids."""


def folder_name(root: str | None, table: str | None = None) -> str:
    """A name for a folder of images that was given none: the folder's own, as far as files may bear it.

    Without a `root`, that of the folder in which a table of them lies.
    """
    folder = root if root is not None or table is None else str(Path(table).expanduser().parent)
    base = "" if folder is None else Path(folder).expanduser().resolve().name
    return re.sub(r"[^A-Za-z0-9_]+", "_", base).strip("_") or "folder"
