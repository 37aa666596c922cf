"""Typed configuration: one dataclass per config group.

YAML under `configs/` is composed by Hydra against these classes and becomes objects once, at entry
(`load`). `slots=True` is what turns an unknown key that was forced in with `+` into an error, and
`__post_init__` is where a value that cannot work is refused, by its key.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from pcr_exp.errors import ConfigError

REFERENCE_BATCH_SIZE = 256
"""Published learning rates are per this many images (Goyal et al. 2017)."""

NUM_GROUPS = 10
"""Scan groups in a PCR record: libjpeg's default progressive script for YCbCr has ten scans."""

PHOTOS_VERSION = 2
"""Of the embedded dataset's generator: raise it with every change that gives other pictures."""

T = TypeVar("T")


def _require(ok: bool, key: str, given: object, wanted: str) -> None:
    if not ok:
        raise ConfigError(f"{key}={given!r}: wanted {wanted}.")


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
        low, high = _pair("dataset.augment.crop_scale", self.crop_scale)
        _require(0 < low <= high <= 1, "dataset.augment.crop_scale", self.crop_scale, "0 < low <= high <= 1")
        low, high = _pair("dataset.augment.crop_ratio", self.crop_ratio)
        _require(0 < low <= high, "dataset.augment.crop_ratio", self.crop_ratio, "0 < low <= high")
        _require(
            0 < self.eval_crop_fraction <= 1,
            "dataset.augment.eval_crop_fraction",
            self.eval_crop_fraction,
            "a share in (0, 1]",
        )


def _pair(key: str, values: list[float]) -> tuple[float, float]:
    _require(len(values) == 2, key, values, "two numbers, [low, high]")
    return values[0], values[1]


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
        _require(
            self.images_per_record >= 1, "dataset.images_per_record", self.images_per_record, "at least 1"
        )
        _require(0 < self.target_top1 <= 1, "dataset.target_top1", self.target_top1, "a share in (0, 1]")
        for key in ("max_train_images", "max_val_images"):
            value = getattr(self, key)
            _require(value is None or value >= 1, f"dataset.{key}", value, "null or at least 1")


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
        _require(0 < self.val_fraction < 1, "dataset.val_fraction", self.val_fraction, "a share in (0, 1)")


@dataclass(kw_only=True, slots=True)
class Ham10000Config(OwnSplitConfig):
    split: str = "lesion"
    """`lesion`: no lesion on both sides. `file`: the paper's, with photos of one lesion on both."""

    def __post_init__(self) -> None:
        OwnSplitConfig.__post_init__(self)
        _require(self.split in ("lesion", "file"), "dataset.split", self.split, "lesion or file")


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
            _require(getattr(self, key) >= 1, f"dataset.{key}", getattr(self, key), "at least 1")
        _require(self.size_px >= 64, "dataset.size_px", self.size_px, "at least 64")
        _require(1 <= self.quality <= 100, "dataset.quality", self.quality, "a JPEG quality, 1..100")
        version = f"{PHOTOS_VERSION}, the one that this release makes"
        _require(self.version == PHOTOS_VERSION, "dataset.version", self.version, version)


@dataclass(kw_only=True, slots=True)
class RecordsConfig:
    """Where records are written and read, and how they are made."""

    root: str = "data/records"
    """Local folder or any fsspec address; records of a dataset lie in `<root>/<dataset>-<key>`."""
    on_error: str = "fail"
    """`fail` stops at the first image that cannot be stored faithfully; `skip` lists it in rejected.csv."""
    num_workers: int = 2
    auto_prepare: bool = True
    """Training and quality make missing records themselves."""

    def __post_init__(self) -> None:
        _require(self.on_error in ("fail", "skip"), "records.on_error", self.on_error, "fail or skip")
        _require(self.num_workers >= 1, "records.num_workers", self.num_workers, "at least 1")


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """A torchvision classification model by its name, with a head for the dataset's label."""

    name: str = MISSING
    pretrained: bool = False
    """Load weights before the head is replaced: from `weights` if given, else torchvision's default."""
    weights: str | None = None
    """A local state dict (.pt / .pth)."""


@dataclass(kw_only=True, slots=True)
class ScanConfig:
    """Which bytes of each record are read."""

    name: str = MISSING
    encoding: str = "pcr"
    """`pcr`, or `baseline`: the original JPEG bytes in the same container."""
    group: int = NUM_GROUPS

    def __post_init__(self) -> None:
        _require(self.encoding in ("pcr", "baseline"), "scan.encoding", self.encoding, "pcr or baseline")
        highest = NUM_GROUPS if self.encoding == "pcr" else 1
        _require(1 <= self.group <= highest, "scan.group", self.group, f"a scan group, 1..{highest}")


@dataclass(kw_only=True, slots=True)
class StorageConfig:
    """How fast bytes come. null means no limit."""

    name: str = MISSING
    bandwidth_mib_per_s: float | None = None
    latency_ms: float = 0.0
    requests_per_s: float | None = None

    def __post_init__(self) -> None:
        for key in ("bandwidth_mib_per_s", "requests_per_s"):
            value = getattr(self, key)
            _require(
                value is None or value > 0, f"storage.{key}", value, "a rate above 0, or null for no limit"
            )
        _require(0 <= self.latency_ms < math.inf, "storage.latency_ms", self.latency_ms, "0 or more")


@dataclass(kw_only=True, slots=True)
class LoaderConfig:
    """How records become batches."""

    num_workers: int = 1
    """Decoding processes; 0 decodes in the training process."""
    shuffle_records: int = 4
    """Records whose samples are shuffled together."""
    records_ahead: int | None = None
    """Records read ahead of decoding; null sizes it from bandwidth x latency (Little's law)."""
    prefetch_batches: int = 2
    """Decoded batches waiting per worker."""
    decode: str = "libjpeg"
    """`libjpeg`: its smoothed output. `unsmoothed`: faster below scan group 10. `scaled`: besides, groups 1
    and 2 at 1/8 and 1/2 of the size, enlarged again by the crop."""
    timeout_s: float | None = 300.0
    """An error, if nothing has been read or decoded for this long while training waits (null: no limit)."""

    def __post_init__(self) -> None:
        _require(self.num_workers >= 0, "loader.num_workers", self.num_workers, "0 or more")
        _require(
            self.timeout_s is None or self.timeout_s > 0,
            "loader.timeout_s",
            self.timeout_s,
            "seconds above 0, or null to wait forever",
        )
        _require(self.shuffle_records >= 1, "loader.shuffle_records", self.shuffle_records, "at least 1")
        ahead = self.records_ahead
        _require(ahead is None or ahead >= 1, "loader.records_ahead", ahead, "null or at least 1")
        _require(self.prefetch_batches >= 1, "loader.prefetch_batches", self.prefetch_batches, "at least 1")
        modes = ("libjpeg", "unsmoothed", "scaled")
        _require(self.decode in modes, "loader.decode", self.decode, "libjpeg, unsmoothed or scaled")


@dataclass(kw_only=True, slots=True)
class TrainingConfig:
    """SGD with momentum, its schedule, and how often things are looked at."""

    epochs: int = MISSING
    batch_size: int = MISSING
    image_size: int = MISSING
    eval_image_size: int = MISSING
    learning_rate: float = MISSING
    """The rate itself, for this batch size."""
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    schedule: str = "step"
    """`step`: x lr_gamma at each of lr_milestones (epochs); `cosine`: to zero; `constant`."""
    lr_milestones: list[int] = field(default_factory=list)
    lr_gamma: float = 0.1
    warmup_epochs: float = 0.0
    label_smoothing: float = 0.0
    amp: bool = True
    """Mixed precision; takes effect on a GPU only."""
    channels_last: bool = True
    eval_every_epochs: int = 1
    log_every_steps: int = 10
    checkpoint_every_steps: int | None = None
    """Besides the checkpoint after every evaluation (null: only those)."""
    device: str = "auto"
    num_threads: int | None = None
    """torch's CPU threads (null: the cores that decoding workers leave; on a GPU torch's own choice)."""

    def __post_init__(self) -> None:
        for key in (
            "epochs",
            "batch_size",
            "image_size",
            "eval_image_size",
            "eval_every_epochs",
            "log_every_steps",
        ):
            _require(getattr(self, key) >= 1, f"training.{key}", getattr(self, key), "at least 1")
        _require(self.learning_rate > 0, "training.learning_rate", self.learning_rate, "above 0")
        _require(0 <= self.momentum < 1, "training.momentum", self.momentum, "in [0, 1)")
        _require(0 <= self.label_smoothing < 1, "training.label_smoothing", self.label_smoothing, "in [0, 1)")
        _require(self.warmup_epochs >= 0, "training.warmup_epochs", self.warmup_epochs, "0 or more")
        choices = ("step", "cosine", "constant")
        _require(self.schedule in choices, "training.schedule", self.schedule, " or ".join(choices))


@dataclass(kw_only=True, slots=True)
class TrackingConfig:
    """Where curves go besides the run directory."""

    name: str = MISSING
    """`none` or `wandb`."""
    mode: str = "offline"
    project: str = "pcr-exp"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _require(self.name in ("none", "wandb"), "tracking.name", self.name, "none or wandb")
        _require(self.mode in ("offline", "online"), "tracking.mode", self.mode, "offline or online")


@dataclass(kw_only=True, slots=True)
class PrepareConfig:
    """`python -m experiments.prepare`"""

    dataset: DatasetConfig = MISSING
    records: RecordsConfig = field(default_factory=RecordsConfig)


@dataclass(kw_only=True, slots=True)
class TrainConfig:
    """`python -m experiments.train`"""

    dataset: DatasetConfig = MISSING
    records: RecordsConfig = field(default_factory=RecordsConfig)
    model: ModelConfig = MISSING
    scan: ScanConfig = MISSING
    storage: StorageConfig = MISSING
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    training: TrainingConfig = MISSING
    tracking: TrackingConfig = MISSING
    seed: int = 0
    runs_root: str = "results/runs"


@dataclass(kw_only=True, slots=True)
class QualityConfig:
    """`python -m experiments.quality`"""

    dataset: DatasetConfig = MISSING
    records: RecordsConfig = field(default_factory=RecordsConfig)
    split: str = "val"
    groups: list[int] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    max_images: int = 200
    """Images measured, spread evenly over the split."""
    num_workers: int = 2
    out: str = "results/quality/${dataset.name}"

    def __post_init__(self) -> None:
        _require(self.split in ("train", "val"), "split", self.split, "train or val")
        _require(
            bool(self.groups) and all(1 <= g <= NUM_GROUPS for g in self.groups),
            "groups",
            self.groups,
            f"scan groups, 1..{NUM_GROUPS}",
        )
        _require(self.max_images >= 1, "max_images", self.max_images, "at least 1")
        _require(self.num_workers >= 1, "num_workers", self.num_workers, "at least 1")


@dataclass(kw_only=True, slots=True)
class ThroughputConfig:
    """`python -m experiments.throughput`"""

    dataset: DatasetConfig = MISSING
    """Its training images; `dataset.augment` is not used: all loaders do the same standard crop."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """Ours; peers are given its num_workers and prefetch_batches."""
    scans: list[str] = MISSING
    """Ours: baseline, group_1 to group_10."""
    decodes: list[str] = field(default_factory=list)
    """Values of `loader.decode` to measure side by side; none: that of `loader` alone."""
    peers: list[str] = MISSING
    """Loaders of others; one that cannot run here is listed as absent, with the reason."""
    image_size: int = 224
    batch_size: int = 64
    model_images_per_s: float | None = 1000.0
    """Speed of the pretended model, for a second measurement that shows the wait share (null: none)."""
    bandwidths_mib_per_s: list[float] = field(default_factory=list)
    """Throttles, each by itself, for ours and for one file per image."""
    latencies_ms: list[float] = field(default_factory=list)
    requests_per_s: list[float] = field(default_factory=list)
    repeats: int = 5
    measure_s: float = 2.0
    """Each measurement takes as many whole epochs as this needs, at least one."""
    cold_cache: bool = False
    """Drop what a loader reads from the page cache before each measurement, as far as the kernel allows."""
    static_copies: bool = True
    """Also build copies at reduced quality, as large as the scan groups, to compare their space with."""
    on_error: str = "skip"
    seed: int = 0
    measure: bool = True
    """false: measure nothing, draw what `out` holds."""
    work: str = "data/throughput"
    """Every format of the images is built here, once."""
    out: str = "results/throughput/${dataset.name}"

    def __post_init__(self) -> None:
        _require(bool(self.scans or self.peers), "scans", self.scans, "at least one loader, here or in peers")
        for key in ("image_size", "batch_size", "repeats"):
            _require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        _require(self.measure_s > 0, "measure_s", self.measure_s, "seconds above 0")
        model = self.model_images_per_s
        _require(model is None or model > 0, "model_images_per_s", model, "null or a rate above 0")
        for key in ("bandwidths_mib_per_s", "latencies_ms", "requests_per_s"):
            _require(
                all(limit > 0 for limit in getattr(self, key)), key, getattr(self, key), "limits above 0"
            )
        _require(self.on_error in ("fail", "skip"), "on_error", self.on_error, "fail or skip")


@dataclass(kw_only=True, slots=True)
class FiguresConfig:
    """`python -m experiments.figures`"""

    runs_root: str = "results/runs"
    quality_root: str = "results/quality"
    out: str = "results/figures"


@dataclass(kw_only=True, slots=True)
class DemoConfig:
    """`python -m experiments.demo`: the whole slice on the embedded photographs."""

    labels: list[str] = MISSING
    """Tasks, the first being the one whose table is shown as the result."""
    scans: list[str] = MISSING
    overrides: list[str] = field(default_factory=list)
    """Settings of every training run, as on the command line of `experiments.train`."""
    quality_images: int = 100
    out: str = "results/demo"

    def __post_init__(self) -> None:
        _require(bool(self.labels), "labels", self.labels, "at least one label of the dataset")
        _require("baseline" in self.scans, "scans", self.scans, "scan levels with baseline among them")


DATASET_SCHEMAS: dict[str, type[DatasetConfig]] = {
    "imagenet": ImageNetConfig,
    "ham10000": Ham10000Config,
    "cars": CarsConfig,
    "celebahq": CelebAHQConfig,
    "folder": FolderConfig,
    "photos": PhotosConfig,
}

RUNNER_SCHEMAS: dict[str, type] = {
    "prepare": PrepareConfig,
    "train": TrainConfig,
    "quality": QualityConfig,
    "throughput": ThroughputConfig,
    "figures": FiguresConfig,
    "demo": DemoConfig,
}


def scaled_learning_rate(per_256: float, batch_size: int) -> float:
    """Return the rate for `batch_size` images, given the rate for 256 (Goyal et al. 2017, section 2.1)."""
    return per_256 * batch_size / REFERENCE_BATCH_SIZE


def register() -> None:
    """Give Hydra the schemas that the YAML files are checked against, and the function that they call."""
    OmegaConf.register_new_resolver("scaled_learning_rate", scaled_learning_rate, replace=True)
    store = ConfigStore.instance()
    for name, schema in DATASET_SCHEMAS.items():
        store.store(group="dataset", name=f"{name}_schema", node=schema, provider="pcr_exp")
    for name, schema in RUNNER_SCHEMAS.items():
        store.store(name=f"{name}_schema", node=schema, provider="pcr_exp")


def load(config: DictConfig, schema: type[T]) -> T:
    """Turn what Hydra composed into objects; every check of this file runs here.

    Raises:
        ConfigError: a key is missing, unknown, of the wrong type, or has a value that cannot work.
    """
    try:
        loaded = OmegaConf.to_object(config)
    except ConfigError:
        raise
    except (ConfigKeyError, AttributeError) as error:  # the latter is how slots refuse `+dataset.typo=1`
        raise ConfigError(f"unknown configuration key: {error}") from error
    except (OmegaConfBaseException, TypeError) as error:
        raise ConfigError(f"the configuration cannot be used: {error}") from error
    if not isinstance(loaded, schema):
        raise ConfigError(f"the configuration is a {type(loaded).__name__}; wanted a {schema.__name__}.")
    return loaded


def key_of(fields: dict[str, Any]) -> str:
    """Eight hex digits that name a set of settings: SHA-256 of their canonical JSON."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def records_name(dataset: DatasetConfig) -> str:
    """The folder of a dataset's records: its name and a key of every setting that changes their bytes."""
    fields = asdict(dataset)
    for unrelated in ("root", "label", "target_top1", "augment", "paper"):
        del fields[unrelated]
    return f"{dataset.name}-{key_of(fields)}"
