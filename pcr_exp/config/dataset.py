"""Which pictures, which label, and how the papers train on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import pair, require

PHOTOS_VERSION = 2
"""Of the embedded dataset's generator: raise it with every change that gives other pictures."""


@dataclass(kw_only=True, slots=True)
class AugmentConfig:
    """What happens to a decoded image before it enters a batch."""

    crop_scale: list[float] = field(default_factory=lambda: [0.08, 1.0])
    """Random-resized-crop: smallest and largest share of the image's area (Szegedy et al. 2015)."""
    crop_ratio: list[float] = field(default_factory=lambda: [0.75, 4 / 3])
    horizontal_flip: bool = True
    eval_crop_fraction: float = 0.875
    """Validation: the short side becomes image_size / fraction, then a centre crop of image_size."""

    def __post_init__(self) -> None:
        low, high = pair("dataset.augment.crop_scale", self.crop_scale)
        require(0 < low <= high <= 1, "dataset.augment.crop_scale", self.crop_scale, "0 < low <= high <= 1")
        low, high = pair("dataset.augment.crop_ratio", self.crop_ratio)
        require(0 < low <= high, "dataset.augment.crop_ratio", self.crop_ratio, "0 < low <= high")
        require(
            0 < self.eval_crop_fraction <= 1,
            "dataset.augment.eval_crop_fraction",
            self.eval_crop_fraction,
            "a share in (0, 1]",
        )


@dataclass(kw_only=True, slots=True)
class PaperConfig:
    """How the PCR paper trains on a dataset (`training=paper model=paper`); sources in each YAML."""

    model: str = MISSING
    pretrained: bool = False
    epochs: int = MISSING
    learning_rate: float = MISSING
    """Per 256 images of global batch."""
    lr_milestones: list[int] = MISSING
    image_size: int = MISSING
    eval_image_size: int = MISSING


@dataclass(kw_only=True, slots=True)
class DatasetConfig:
    """Which pictures, which label, and how the paper stores and trains on them."""

    name: str = MISSING
    root: str | None = None
    """Folder in the dataset's official layout."""
    label: str = MISSING
    """The named label that is trained on."""
    images_per_record: int = MISSING
    target_top1: float = MISSING
    """Validation top-1 (a share, 0..1) that time to accuracy is measured to; declared before any run."""
    max_train_images: int | None = None
    """Keep only a seeded random subset of this many training samples (null: all)."""
    max_val_images: int | None = None
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    paper: PaperConfig = field(default_factory=PaperConfig)

    def __post_init__(self) -> None:
        require(
            self.images_per_record >= 1, "dataset.images_per_record", self.images_per_record, "at least 1"
        )
        require(0 < self.target_top1 <= 1, "dataset.target_top1", self.target_top1, "a share in (0, 1]")
        for key in ("max_train_images", "max_val_images"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"dataset.{key}", value, "null or at least 1")


@dataclass(kw_only=True, slots=True)
class ImageNetConfig(DatasetConfig):
    """ILSVRC 2012 class folders."""


@dataclass(kw_only=True, slots=True)
class OwnSplitConfig(DatasetConfig):
    """A dataset whose publisher does not say which images validate: a seeded share is held out."""

    val_fraction: float = 0.2
    split_seed: int = 42

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        require(0 < self.val_fraction < 1, "dataset.val_fraction", self.val_fraction, "a share in (0, 1)")


@dataclass(kw_only=True, slots=True)
class Ham10000Config(OwnSplitConfig):
    split: str = "lesion"
    """`lesion`: no lesion on both sides. `file`: the paper's, with photos of one lesion on both."""

    def __post_init__(self) -> None:
        OwnSplitConfig.__post_init__(self)
        require(self.split in ("lesion", "file"), "dataset.split", self.split, "lesion or file")


@dataclass(kw_only=True, slots=True)
class CarsConfig(DatasetConfig):
    """Stanford Cars; labels model, make, is_corvette."""


@dataclass(kw_only=True, slots=True)
class CelebAHQConfig(OwnSplitConfig):
    """CelebAMask-HQ; label smiling."""


@dataclass(kw_only=True, slots=True)
class FolderConfig(OwnSplitConfig):
    """Anyone's own class folders: root/train/<class>/ and root/val/<class>/, or root/<class>/ alone.

    `val_fraction` of each class is held out when root has no val folder.
    """


@dataclass(kw_only=True, slots=True)
class PhotosConfig(DatasetConfig):
    """The embedded dataset, made from the photographs that scikit-image ships."""

    num_train: int = 1536
    num_val: int = 512
    size_px: int = 256
    quality: int = 90
    seed: int = 0
    version: int = PHOTOS_VERSION
    """A setting so that it is part of the names of records and runs; there is no other to choose."""

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        for key in ("num_train", "num_val"):
            require(getattr(self, key) >= 1, f"dataset.{key}", getattr(self, key), "at least 1")
        require(self.size_px >= 64, "dataset.size_px", self.size_px, "at least 64")
        require(1 <= self.quality <= 100, "dataset.quality", self.quality, "a JPEG quality, 1..100")
        version = f"{PHOTOS_VERSION}, the one that this release makes"
        require(self.version == PHOTOS_VERSION, "dataset.version", self.version, version)


DATASET_SCHEMAS: dict[str, type[DatasetConfig]] = {
    "imagenet": ImageNetConfig,
    "ham10000": Ham10000Config,
    "cars": CarsConfig,
    "celebahq": CelebAHQConfig,
    "folder": FolderConfig,
    "photos": PhotosConfig,
}
