"""The settings of commands that measure: quality, tolerance, evaluate."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import expanded, require
from pcr_exp.config.commands import StudyConfig, TrackingConfig, no_tracking
from pcr_exp.config.loader import ANTIALIAS, DECODE_MODES, LoaderConfig, StorageConfig
from pcr_exp.config.records import MAX_PIXELS, RecordsConfig
from pcr_exp.config.scan import PAPER_GROUPS
from pcr_exp.config.scan_scripts import NUM_GROUPS, ScanScriptConfig, groups_of_script
from pcr_exp.config.training import ModelConfig, TaskConfig

ALL = "all"
"""In place of a split: every image."""

IMAGE_SIZE = 224
"""Of networks that no run says it of."""

DEFAULT_MODEL = "efficientnet_lite0"
"""That of `configs/evaluate.yaml`: who has not asked for another takes the runs' own."""


@dataclass(kw_only=True, slots=True)
class EvaluateConfig(StudyConfig):
    """`python -m experiments.evaluate`: what a model is worth at scan groups that it was not trained at."""

    records: RecordsConfig = field(default_factory=RecordsConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    """Its headline is what the matrix of training and test groups shows."""
    model: ModelConfig = MISSING
    """What is evaluated, with `model.weights` or the published ones; `runs` bring their own."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """`loader.decode` gives way to `decodes`."""
    tracking: TrackingConfig = MISSING
    runs: list[str] = field(default_factory=list)
    """Folders of finished runs, or folders that hold such: their checkpoints are evaluated."""
    classes: str | None = None
    """A file with the class of each of the model's outputs, one a line (its first word), by the names that
    the dataset has; null: the dataset's own classes in their order. ImageNet's 1,000 are wnids."""
    split: str = "val"
    """`train`, `tune` or `val`, which are read from records and made if they are missing; or `all`: every
    image that lies there, read from its file. No records are made, and nothing need be there to train on."""
    groups: list[int] = field(default_factory=lambda: list(PAPER_GROUPS))
    """Scan groups to look at; the original images (baseline) are always looked at, to compare with."""
    decodes: list[str] = field(default_factory=lambda: ["scaled"])
    """Values of `loader.decode` to look at."""
    image_size: int | None = None
    """Pixels of a side of what networks see; null: of `runs` what they were looked at with, else 224."""
    batch_size: int = 50
    """Images that go through the network together."""
    device: str = "auto"
    """`cpu`, `cuda` or another of torch's; `auto`: a GPU if there is one."""
    num_threads: int | None = None
    """torch's CPU threads (null: its own choice)."""
    seed: int = 0
    """Has no effect: an evaluation draws nothing at random."""
    out_root: str = "outputs/evaluate"

    def __post_init__(self) -> None:
        self.expand_places()
        self.runs = [expanded(folder) for folder in self.runs]
        self.classes = None if self.classes is None else expanded(self.classes)
        splits = ("train", "tune", "val", ALL)
        require(self.split in splits, "split", self.split, " or ".join(splits))
        inside = bool(self.groups) and all(1 <= group <= NUM_GROUPS for group in self.groups)
        require(inside, "groups", self.groups, f"scan groups, 1..{NUM_GROUPS}")
        if self.records.num_groups is not None:
            self.groups = groups_of_script("groups", self.groups, self.records.num_groups)
        self.groups = sorted(set(self.groups))
        known = bool(self.decodes) and set(self.decodes) <= set(DECODE_MODES)
        require(known, "decodes", self.decodes, f"some of {', '.join(DECODE_MODES)}")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        for key in ("image_size", "num_threads"):
            value = getattr(self, key)
            require(value is None or value >= 1, key, value, "null or at least 1")


SPLITS = ("train", "tune", "val")

STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)

NUM_FOLDS, NUM_INNER_FOLDS = 5, 3

NUM_RESAMPLES = 2000

DEPLOYMENTS = ("full", "same")
"""Trained at a group, and used at the highest group, or at that group."""


@dataclass(kw_only=True, slots=True)
class TranscodingConfig:
    """How the images would lie in records; none are read or written."""

    scans: ScanScriptConfig = field(default_factory=ScanScriptConfig)
    """As `records.scans` of the other programs."""


@dataclass(kw_only=True, slots=True)
class ToleranceConfig(StudyConfig):
    """`python -m experiments.tolerance`: frozen features, a linear classifier, cross-validation."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = MISSING
    """The backbone, with pretrained weights; what its last linear layer is given are the features."""
    storage: StorageConfig = MISSING
    """The storage that the answer is for: what its bandwidth and seeks make of the bytes."""
    tracking: TrackingConfig = MISSING
    records: TranscodingConfig = field(default_factory=TranscodingConfig)
    groups: list[int] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    """Scan groups that are compared with the highest of them."""
    splits: list[str] = field(default_factory=lambda: ["train", "tune"])
    """Whose images are looked at. Not val: the answer is a choice, and results are reported on val."""
    max_images: int | None = 2000
    """A random subset of the images of these splits (null: all)."""
    num_similarity_images: int = 200
    """Images of them whose crops are compared by MS-SSIM at every group (0: none)."""
    margin: float = 0.01
    """What may be lost of the task's headline, as a share: 0.01 is one point."""
    image_size: int = 128
    """Pixels of a side of what the backbone sees: one centre crop of each image."""
    decode: str = "scaled"
    """As `loader.decode`."""
    antialias: bool = ANTIALIAS
    """As `loader.antialias`."""
    num_folds: int = NUM_FOLDS
    """Folds of the cross-validation."""
    num_inner_folds: int = NUM_INNER_FOLDS
    """Folds of the images that are trained on, by which the strength of regularisation is chosen."""
    strengths: list[float] = field(default_factory=lambda: list(STRENGTHS))
    """Inverse strengths of regularisation to choose from (scikit-learn's `C`), the same at every group."""
    num_resamples: int = NUM_RESAMPLES
    """Of the bootstrap."""
    num_workers: int = 2
    """Threads, each of one core."""
    seed: int = 0
    """Seed of the subset, the folds and the bootstrap."""
    max_pixels: int = MAX_PIXELS
    """As `records.max_pixels`."""
    features_root: str = "data/features"
    """Features are kept here: another label, task or margin costs no look at the images."""
    out_root: str = "outputs/tolerance"

    def __post_init__(self) -> None:
        self.expand_places()
        self.features_root = expanded(self.features_root)
        inside = len(set(self.groups)) >= 2 and all(1 <= group <= NUM_GROUPS for group in self.groups)
        require(inside, "groups", self.groups, f"two scan groups or more, 1..{NUM_GROUPS}")
        num_groups = self.records.scans.script.num_groups
        self.groups = sorted({*groups_of_script("groups", self.groups, num_groups)})
        known = bool(self.splits) and set(self.splits) <= set(SPLITS)
        require(known, "splits", self.splits, f"some of {', '.join(SPLITS)}")
        enough = self.max_images is None or self.max_images >= 10
        require(enough, "max_images", self.max_images, "null or at least 10")
        count = self.num_similarity_images
        require(count >= 0, "num_similarity_images", count, "0 or more")
        require(0 < self.margin < 1, "margin", self.margin, "a share in (0, 1): 0.01 is one point")
        require(self.image_size >= 32, "image_size", self.image_size, "at least 32")
        require(self.decode in DECODE_MODES, "decode", self.decode, " or ".join(DECODE_MODES))
        for key in ("num_folds", "num_inner_folds"):
            require(getattr(self, key) >= 2, key, getattr(self, key), "at least 2")
        positive = bool(self.strengths) and min(self.strengths) > 0
        require(positive, "strengths", self.strengths, "one number or more, each above 0")
        require(self.num_resamples >= 100, "num_resamples", self.num_resamples, "at least 100")
        require(self.num_workers >= 1, "num_workers", self.num_workers, "at least 1")
        usable = self.model.pretrained
        wanted = "true: features of a network that has learned nothing say nothing about a task"
        require(usable, "model.pretrained", self.model.pretrained, wanted)


@dataclass(kw_only=True, slots=True)
class QualityConfig(StudyConfig):
    """Settings of `python -m experiments.quality`."""

    records: RecordsConfig = field(default_factory=RecordsConfig)
    tracking: TrackingConfig = field(default_factory=no_tracking)
    split: str = "val"
    """`train`, `tune` or `val`."""
    groups: list[int] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    """Scan groups to measure."""
    max_images: int = 200
    """Images measured, spread evenly over the split."""
    num_workers: int = 2
    """Threads that decode and compare."""
    decodes: list[str] = field(default_factory=list)
    """Values of `loader.decode` whose training crops are measured too (none: whole images only)."""
    crop_size_px: int = 224
    """Pixels of a side of the crops of `decodes`."""
    image: str | None = None
    """Draw one image at the scan groups, and measure no dataset: a JPEG file, or one of scikit-image's
    photographs by its name (`astronaut`, `coffee`, `rocket` ...)."""
    out_root: str = "outputs/quality"

    def __post_init__(self) -> None:
        self.expand_places()
        splits = ("train", "tune", "val")
        require(self.split in splits, "split", self.split, " or ".join(splits))
        require(
            bool(self.groups) and all(1 <= g <= NUM_GROUPS for g in self.groups),
            "groups",
            self.groups,
            f"scan groups, 1..{NUM_GROUPS}",
        )
        if self.records.num_groups is not None:
            self.groups = groups_of_script("groups", self.groups, self.records.num_groups)
        require(self.max_images >= 1, "max_images", self.max_images, "at least 1")
        require(self.num_workers >= 1, "num_workers", self.num_workers, "at least 1")
        for mode in self.decodes:
            require(mode in DECODE_MODES, "decodes", self.decodes, " or ".join(DECODE_MODES))
        require(self.crop_size_px >= 32, "crop_size_px", self.crop_size_px, "at least 32, for MS-SSIM")
