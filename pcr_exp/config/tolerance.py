"""Settings of `python -m experiments.tolerance`: which scan group a task tolerates, before any training."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import expanded, require
from pcr_exp.config.loader import ANTIALIAS, DECODE_MODES
from pcr_exp.config.model import ModelConfig
from pcr_exp.config.records import MAX_PIXELS, NUM_GROUPS
from pcr_exp.config.runners import StudyConfig, TrackingConfig
from pcr_exp.config.scan_scripts import ScanScriptConfig, groups_of_script
from pcr_exp.config.storage import StorageConfig
from pcr_exp.config.training import TaskConfig

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
