"""Settings of the commands that measure: quality, tolerance, evaluate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from omegaconf import MISSING

from pcr_exp.config.check import (
    INNER_SHARE,
    PATH,
    Bound,
    any_each,
    at_least,
    check_fields,
    each,
    one_of,
    or_null,
    require,
)
from pcr_exp.config.commands import StudyConfig, TrackingConfig, no_tracking
from pcr_exp.config.loader import ANTIALIAS, DECODE_MODES, LoaderConfig, StorageConfig
from pcr_exp.config.records import MAX_PIXELS, RecordsConfig
from pcr_exp.config.scan import PAPER_GROUPS
from pcr_exp.config.scan_scripts import NUM_GROUPS, ScanScriptConfig, groups_of_script
from pcr_exp.config.training import ModelConfig, TaskConfig

SPLITS = ("train", "tune", "val")

ALL = "all"
"""Value of `split` that stands for every image."""

IMAGE_SIZE = 224
"""Default input size of networks, in pixels, if no run provides it."""

DEFAULT_MODEL = "efficientnet_lite0"
"""Default of `configs/evaluate.yaml`. Unless another is chosen, runs provide their own model."""

_GROUPS = any_each(lambda group: 1 <= group <= NUM_GROUPS, f"scan groups, 1..{NUM_GROUPS}")
_DECODES = any_each(lambda mode: mode in DECODE_MODES, f"some of {', '.join(DECODE_MODES)}")


@dataclass(kw_only=True, slots=True)
class EvaluateConfig(StudyConfig):
    """`python -m experiments.evaluate`: trained models at scan groups that they were not trained at."""

    records: RecordsConfig = field(default_factory=RecordsConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    """Task, whose primary metric is shown in the matrix of training and test groups."""
    model: ModelConfig = MISSING
    """Model to evaluate, with `model.weights` or the published weights; `runs` have their own."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """Loader settings; `decodes` replaces `loader.decode`."""
    tracking: TrackingConfig = MISSING
    runs: Annotated[list[str], PATH] = field(default_factory=list)
    """Folders of finished runs, or folders that contain such runs. Their checkpoints are evaluated."""
    classes: Annotated[str | None, PATH] = None
    """File with the class of each model output, one per line (its first word), by the dataset's class names.
    null: the dataset's own classes, in their order. ImageNet's 1,000 are wnids."""
    split: Annotated[str, one_of(*SPLITS, ALL)] = "val"
    """`train`, `tune` or `val`: read from records, which are made if they are missing. `all`: every image,
    read from its file, without records or a training split."""
    groups: Annotated[list[int], _GROUPS] = field(default_factory=lambda: list(PAPER_GROUPS))
    """Scan groups to evaluate at. The original images (baseline) are always evaluated for comparison."""
    decodes: Annotated[list[str], _DECODES] = field(default_factory=lambda: ["scaled"])
    """Values of `loader.decode` to evaluate at."""
    image_size: Annotated[int | None, or_null(at_least(1))] = None
    """Side in pixels of the network's input; null: as `runs` were evaluated, else 224."""
    batch_size: Annotated[int, at_least(1)] = 50
    """Images per batch of the network."""
    device: str = "auto"
    """`cpu`, `cuda` or another torch device; `auto`: a GPU if there is one."""
    num_threads: Annotated[int | None, or_null(at_least(1))] = None
    """CPU threads of torch (null: torch's own choice)."""
    seed: int = 0
    """Has no effect, as evaluation is not random."""
    out_root: str = "outputs/evaluate"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.records.num_groups is not None:
            self.groups = groups_of_script("groups", self.groups, self.records.num_groups)
        self.groups = sorted(set(self.groups))


STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)

NUM_FOLDS, NUM_INNER_FOLDS = 5, 3

NUM_RESAMPLES = 2000

DEPLOYMENTS = ("full", "same")
"""Test groups of models trained at a group: the highest group, or the same group."""

MARGIN = Bound(INNER_SHARE.holds, f"{INNER_SHARE.wanted}: 0.01 is one point")
_TWO_GROUPS = Bound(
    lambda groups: len(set(groups)) >= 2 and _GROUPS.holds(groups),
    f"two scan groups or more, 1..{NUM_GROUPS}",
)
_SOME_SPLITS = any_each(lambda split: split in SPLITS, f"some of {', '.join(SPLITS)}")
_POSITIVE = any_each(lambda strength: strength > 0, "one number or more, each above 0")


@dataclass(kw_only=True, slots=True)
class TranscodingConfig:
    """How the images would be stored in records; none are read or written."""

    scans: ScanScriptConfig = field(default_factory=ScanScriptConfig)
    """As `records.scans` of other commands."""


@dataclass(kw_only=True, slots=True)
class ToleranceConfig(StudyConfig):
    """`python -m experiments.tolerance`: frozen features, a linear classifier, cross-validation."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = MISSING
    """Backbone with pretrained weights. Features are the inputs of its last linear layer."""
    storage: StorageConfig = MISSING
    """Storage to answer for. Its bandwidth and seek time turn bytes into seconds."""
    tracking: TrackingConfig = MISSING
    records: TranscodingConfig = field(default_factory=TranscodingConfig)
    groups: Annotated[list[int], _TWO_GROUPS] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    """Scan groups to compare with the highest of them."""
    splits: Annotated[list[str], _SOME_SPLITS] = field(default_factory=lambda: ["train", "tune"])
    """Splits to take images from. Not val: the answer is a choice, and results are reported on val."""
    max_images: Annotated[int | None, or_null(at_least(10))] = 2000
    """Size of a random subset of the images in these splits (null: all)."""
    num_similarity_images: Annotated[int, at_least(0)] = 200
    """Images of the subset whose crops are compared by MS-SSIM at every group (0: none)."""
    margin: Annotated[float, MARGIN] = 0.01
    """Accepted loss of the primary metric, as a share: 0.01 is one point."""
    image_size: Annotated[int, at_least(32)] = 128
    """Side in pixels of the backbone's input, a centre crop of each image."""
    decode: Annotated[str, one_of(*DECODE_MODES)] = "scaled"
    """As `loader.decode`."""
    antialias: bool = ANTIALIAS
    """As `loader.antialias`."""
    num_folds: Annotated[int, at_least(2)] = NUM_FOLDS
    """Folds of the cross-validation."""
    num_inner_folds: Annotated[int, at_least(2)] = NUM_INNER_FOLDS
    """Inner folds of each training fold, for choosing the regularisation strength."""
    strengths: Annotated[list[float], _POSITIVE] = field(default_factory=lambda: list(STRENGTHS))
    """Inverse regularisation strengths to choose from (scikit-learn's `C`), the same at every group."""
    num_resamples: Annotated[int, at_least(100)] = NUM_RESAMPLES
    """Number of bootstrap resamples."""
    num_workers: Annotated[int, at_least(1)] = 2
    """Threads, each using one core."""
    seed: Annotated[int, at_least(0)] = 0
    """Seed of the subset, the folds and the bootstrap."""
    max_pixels: int = MAX_PIXELS
    """As `records.max_pixels`."""
    num_explored_images: Annotated[int, at_least(0)] = 24
    """Images by class on the page `explore.html`, in addition to those lost at a group (0: no page)."""
    features_root: Annotated[str, PATH] = "data/features"
    """Cache folder for features. With it, another label, task or margin need not read the images again."""
    out_root: str = "outputs/tolerance"

    def __post_init__(self) -> None:
        check_fields(self)
        num_groups = self.records.scans.script.num_groups
        self.groups = sorted({*groups_of_script("groups", self.groups, num_groups)})
        usable = self.model.pretrained
        wanted = "true: features of an untrained network say nothing about a task"
        require(usable, "model.pretrained", self.model.pretrained, wanted)


_KNOWN_DECODES = each(lambda mode: mode in DECODE_MODES, " or ".join(DECODE_MODES))


@dataclass(kw_only=True, slots=True)
class QualityConfig(StudyConfig):
    """Settings of `python -m experiments.quality`."""

    records: RecordsConfig = field(default_factory=RecordsConfig)
    tracking: TrackingConfig = field(default_factory=no_tracking)
    split: Annotated[str, one_of(*SPLITS)] = "val"
    """Split to measure: `train`, `tune` or `val`."""
    groups: Annotated[list[int], _GROUPS] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    """Scan groups to measure."""
    max_images: Annotated[int, at_least(1)] = 200
    """Number of images to measure, spread evenly over the split."""
    num_workers: Annotated[int, at_least(1)] = 2
    """Threads that decode and compare images."""
    decodes: Annotated[list[str], _KNOWN_DECODES] = field(default_factory=list)
    """Values of `loader.decode` at which to measure training crops too (empty: only whole images)."""
    crop_size_px: Annotated[int, at_least(32, "at least 32, for MS-SSIM")] = 224
    """Side in pixels of the crops for `decodes`."""
    image: str | None = None
    """Draw one image at the scan groups, and measure no dataset: a JPEG file, or the name of one of
    scikit-image's photographs (`astronaut`, `coffee`, `rocket` ...)."""
    out_root: str = "outputs/quality"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.records.num_groups is not None:
            self.groups = groups_of_script("groups", self.groups, self.records.num_groups)
