"""Settings of `python -m experiments.throughput`, and of the cluster that it predicts for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from omegaconf import MISSING

from pcr_exp.config.check import (
    PATH,
    Bound,
    above,
    any_each,
    at_least,
    check_fields,
    each,
    one_of,
    or_null,
    require,
)
from pcr_exp.config.commands import RunnerConfig, TrackingConfig, no_tracking
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import DECODE_MODES, LoaderConfig, StorageConfig
from pcr_exp.config.scan import is_level
from pcr_exp.config.scan_scripts import NUM_GROUPS

_FOR_SPEED_UPS = "baseline among the scan levels, because speed-ups are relative to it"
_WITH_BASELINE = Bound(lambda by_level: "baseline" in by_level, _FOR_SPEED_UPS)
_DOLLARS = at_least(0, "dollars, 0 or more")


_SIZES, _EPOCHS, _LIMITS = (each(above(0).holds, f"{what} above 0") for what in ("sizes", "epochs", "limits"))
_RATES = any_each(lambda rate: rate > 0, "at least one rate, all above 0")
"""An infinite one stands for no model (`experiments.pcr.model_validation`)."""


@dataclass(kw_only=True, slots=True)
class PlannedDataConfig:
    """The cluster's training images: stated here, or read from the indexes of records on disk."""

    name: str = MISSING
    """Name of the images in figures."""
    records: str | None = None
    """Folder of a split's records (pcr/ and baseline/) that provides all numbers below; null: stated here."""
    num_images: int | None = None
    """Images per epoch."""
    images_per_record: int | None = None
    """Images per record, which one request reads."""
    image_bytes: Annotated[dict[str, float], _SIZES] = field(default_factory=dict)
    """Mean bytes per image up to each scan level, `baseline` among them."""

    def __post_init__(self) -> None:
        stated = bool(self.num_images and self.images_per_record and self.image_bytes)
        wanted = "a folder of records, or null together with num_images, images_per_record and image_bytes"
        require((self.records is None) == stated, "plan.data.records", self.records, wanted)
        check_fields(self, "plan.data")
        has_baseline = not stated or "baseline" in self.image_bytes
        require(has_baseline, "plan.data.image_bytes", self.image_bytes, _FOR_SPEED_UPS)


@dataclass(kw_only=True, slots=True)
class PlanConfig:
    """Workers that train one model together and read from one storage system."""

    name: str = MISSING
    """Name of the cluster in figures."""
    workers: Annotated[int, at_least(1)] = MISSING
    """Number of workers, each reading and decoding for an accelerator of its own."""
    cores_per_worker: Annotated[float, above(0, "cores above 0")] = MISSING
    """CPU cores per worker that decode."""
    model_images_per_s: Annotated[dict[str, float], _RATES] = MISSING
    """Images/s that one worker's accelerator trains, per model."""
    decode_images_per_s: Annotated[dict[str, float], _RATES, _WITH_BASELINE] = MISSING
    """Images/s that one core decodes and crops, per scan level; other levels are not predicted."""
    storage: StorageConfig = MISSING
    """Storage shared by all workers."""
    reads_in_flight: Annotated[int | None, or_null(at_least(1))] = None
    """Maximum concurrent reads per worker; null: as many as our loader uses for this storage."""
    data: PlannedDataConfig = MISSING
    epochs_to_accuracy: Annotated[dict[str, float], _EPOCHS] = field(default_factory=dict)
    """Epochs to the wanted accuracy, per scan level; empty: predict no time to accuracy."""
    cost_per_gb: Annotated[float, _DOLLARS] = 0.0
    """Dollars that the storage's owner bills per 10^9 bytes read, such as egress."""
    cost_per_1000_requests: Annotated[float, _DOLLARS] = 0.0
    """Dollars per thousand reads; one read is one record up to the scan group."""
    max_workers: Annotated[int, at_least(1)] = 1024
    """The figure over workers goes from 1 to this number, in powers of two."""
    out: str = "outputs/throughput_model/${plan.name}"
    """Folder of the prediction."""

    def __post_init__(self) -> None:
        check_fields(self, "plan")


PEERS = (
    *("image_folder_pil", "image_folder_torchvision", "image_folder_torchcodec", "webdataset", "streaming"),
    *("litdata", "tfrecord", "dali", "ffcv", "ffcv_again"),
)
"""Loaders of other projects, which a checkout measures (`experiments.loaders.peers`)."""
_PEERS = each(lambda name: name in PEERS, f"some of {', '.join(PEERS)}")
_SCANS = each(is_level, f"scan levels: baseline, or group_1 to group_{NUM_GROUPS}")
_DECODES = each(lambda mode: mode in DECODE_MODES, f"some of {', '.join(DECODE_MODES)}")
_PROCESSES = any_each(lambda count: count >= 1, "numbers of reading processes, at least 1")


@dataclass(kw_only=True, slots=True)
class ThroughputConfig(RunnerConfig):
    """Settings of `python -m experiments.throughput`."""

    dataset: DatasetConfig = MISSING
    """Dataset whose training images are used, without `dataset.augment`: all loaders do the same standard
    crop."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """Settings of our loader; peers get its num_workers and prefetch_batches."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    scans: Annotated[list[str], _SCANS] = MISSING
    """Scan levels of our loader: baseline, group_1 to group_10."""
    decodes: Annotated[list[str], _DECODES] = field(default_factory=list)
    """Values of `loader.decode` to compare; empty: only the value in `loader`."""
    antialiases: list[bool] = field(default_factory=list)
    """Values of `loader.antialias` to compare; empty: only the value in `loader`. Peers have filters of their
    own, or none, as the table shows."""
    peers: Annotated[list[str], _PEERS] = MISSING
    """Loaders of other projects. One that cannot run here is listed as absent, with the reason."""
    peers_python: Annotated[str | None, PATH] = None
    """Python interpreter of an environment for peers, as some need older versions of our packages; null: this
    one."""
    bound: bool = True
    """Also measure decoding and cropping alone, around every measurement of our loader at full speed."""
    one_core: bool = False
    """Also measure our loader confined to one core, with one worker."""
    image_size: Annotated[int, at_least(1)] = 224
    """Side in pixels of the crops that loaders return."""
    batch_size: Annotated[int, at_least(1)] = 64
    """Images per batch."""
    model_images_per_s: Annotated[float | None, or_null(above(0), "null or a rate above 0")] = 1000.0
    """Images/s of a simulated model, for a second measurement that shows the data wait share (null: none)."""
    bandwidths_mib_per_s: Annotated[list[float], _LIMITS] = field(default_factory=list)
    """Bandwidth throttles, each used alone, for our loader and for one file per image."""
    latencies_ms: Annotated[list[float], _LIMITS] = field(default_factory=list)
    """Latency throttles: milliseconds before the first byte, each used alone."""
    requests_per_s: Annotated[list[float], _LIMITS] = field(default_factory=list)
    """Request-rate throttles: requests per second, each used alone."""
    repeats: Annotated[int, at_least(1)] = 5
    """Measurements of each loader, interleaved with the others'."""
    measure_s: Annotated[float, above(0, "seconds above 0")] = 2.0
    """Seconds per measurement, which takes whole epochs, at least one; for `validate`, the seconds
    measured."""
    settle_s: Annotated[float, above(0, "seconds above 0")] = 1.0
    """Seconds before `validate` measures, in which loaders start and the first windows arrive."""
    cold_cache: bool = False
    """Drop what a loader reads from the page cache before each measurement, as far as the kernel allows."""
    static_copies: bool = True
    """Also build copies at reduced quality, as large as the scan groups, to compare their storage space."""
    on_error: Annotated[str, one_of("fail", "skip")] = "skip"
    """As `records.on_error`."""
    seed: int = 0
    """Seed of orders and crops."""
    measure: bool = True
    """If false, measure nothing and draw the results in `out`."""
    plan: PlanConfig | None = None
    """A cluster to predict for. Nothing is then measured, and all settings outside `plan` are unused."""
    validate: bool = False
    """Instead of the above: measure scans under throttles that `processes` readers share, and compare them
    with the throughput model's predictions. Adds `repeats` to those already in `out`."""
    runs_roots: Annotated[list[str], PATH] = field(default_factory=list)
    """For `validate`: folders of finished runs, whose times to accuracy are also compared with the
    model's."""
    processes: Annotated[list[int], _PROCESSES] = field(default_factory=lambda: [1, 2, 4])
    """For `validate`: numbers of readers that share a storage."""
    work: Annotated[str, PATH] = "data/throughput"
    """Folder in which every format of the images is built, once."""
    out: Annotated[str, PATH] = "outputs/throughput/${dataset.name}"
    """Folder for rows, tables and figures."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(bool(self.scans or self.peers), "scans", self.scans, "at least one loader, here or in peers")
        require(not (self.validate and self.plan), "validate", self.validate, "false where a plan is given")
