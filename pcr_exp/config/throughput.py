"""The configuration of `python -m experiments.throughput`, and of the cluster that it plans for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import expanded, require
from pcr_exp.config.commands import RunnerConfig, TrackingConfig, no_tracking
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig


@dataclass(kw_only=True, slots=True)
class PlannedDataConfig:
    """What the cluster trains on: stated, or as the indexes of records on disk have it."""

    name: str = MISSING
    """What figures call the images."""
    records: str | None = None
    """Folder of a split's records, with pcr/ and baseline/ in it: it has all numbers below. null: they are
    given here."""
    num_images: int | None = None
    """Images in an epoch."""
    images_per_record: int | None = None
    """Images that one request reads."""
    image_bytes: dict[str, float] = field(default_factory=dict)
    """Mean bytes per image up to each scan level; `baseline` among them."""

    def __post_init__(self) -> None:
        stated = bool(self.num_images and self.images_per_record and self.image_bytes)
        require(
            (self.records is None) == stated,
            "plan.data.records",
            self.records,
            "a folder of records, or null and num_images, images_per_record and image_bytes beside it",
        )
        require(
            all(size > 0 for size in self.image_bytes.values()),
            "plan.data.image_bytes",
            self.image_bytes,
            "sizes above 0",
        )
        require(
            not stated or "baseline" in self.image_bytes,
            "plan.data.image_bytes",
            self.image_bytes,
            "baseline among the scan levels, for speed-ups are over it",
        )


@dataclass(kw_only=True, slots=True)
class PlanConfig:
    """Workers that train one model together and read from one storage system."""

    name: str = MISSING
    """What figures call the cluster."""
    workers: int = MISSING
    """Each has its accelerator, and reads and decodes for it."""
    cores_per_worker: float = MISSING
    """CPU cores that decode."""
    model_images_per_s: dict[str, float] = MISSING
    """What one worker's accelerator trains, per model."""
    decode_images_per_s: dict[str, float] = MISSING
    """What one core decodes and crops, per scan level; a level that is not here is not planned."""
    storage: StorageConfig = MISSING
    """Shared by all workers."""
    reads_in_flight: int | None = None
    """At most so many reads at once, for each worker; null: as many as our loader has for this storage."""
    data: PlannedDataConfig = MISSING
    epochs_to_accuracy: dict[str, float] = field(default_factory=dict)
    """Epochs until the accuracy that is wanted, per scan level; none: no time to accuracy."""
    cost_per_gb: float = 0.0
    """Dollars that the storage's owner bills for 10^9 bytes read, such as egress."""
    cost_per_1000_requests: float = 0.0
    """Dollars for a thousand reads; one read is one record up to the scan group."""
    max_workers: int = 1024
    """The figure over workers goes from 1 to this many, in powers of two."""
    out: str = "outputs/throughput_model/${plan.name}"
    """Folder of the prediction."""

    def __post_init__(self) -> None:
        require(self.workers >= 1, "plan.workers", self.workers, "at least 1")
        require(self.max_workers >= 1, "plan.max_workers", self.max_workers, "at least 1")
        require(self.cores_per_worker > 0, "plan.cores_per_worker", self.cores_per_worker, "cores above 0")
        for key in ("model_images_per_s", "decode_images_per_s"):
            rates = getattr(self, key)
            require(
                bool(rates) and all(rate > 0 for rate in rates.values()),
                f"plan.{key}",
                rates,
                "at least one rate, all above 0",
            )
        require(
            "baseline" in self.decode_images_per_s,
            "plan.decode_images_per_s",
            self.decode_images_per_s,
            "baseline among the scan levels, for speed-ups are over it",
        )
        in_flight = self.reads_in_flight
        require(in_flight is None or in_flight >= 1, "plan.reads_in_flight", in_flight, "null or at least 1")
        require(
            all(epochs > 0 for epochs in self.epochs_to_accuracy.values()),
            "plan.epochs_to_accuracy",
            self.epochs_to_accuracy,
            "epochs above 0",
        )
        for key in ("cost_per_gb", "cost_per_1000_requests"):
            cost = getattr(self, key)
            require(0 <= cost < math.inf, f"plan.{key}", cost, "dollars, 0 or more")


@dataclass(kw_only=True, slots=True)
class ThroughputConfig(RunnerConfig):
    """Settings of `python -m experiments.throughput`."""

    dataset: DatasetConfig = MISSING
    """Its training images; `dataset.augment` is not used: all loaders do the same standard crop."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """Ours; peers are given its num_workers and prefetch_batches."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    scans: list[str] = MISSING
    """Ours: baseline, group_1 to group_10."""
    decodes: list[str] = field(default_factory=list)
    """Values of `loader.decode` to measure side by side; none: that of `loader` alone."""
    antialiases: list[bool] = field(default_factory=list)
    """Values of `loader.antialias` to measure side by side; none: that of `loader` alone. Peers have filters
    of their own, or none: the table says which."""
    peers: list[str] = MISSING
    """Loaders of others; one that cannot run here is listed as absent, with the reason."""
    peers_python: str | None = None
    """The Python interpreter that runs them, of an environment of their own: some want older versions of what
    we use too. null: this one."""
    bound: bool = True
    """Also measure what decoding and cropping alone give, around every measurement of ours at full speed."""
    one_core: bool = False
    """Also measure ours confined to one core, with one worker."""
    image_size: int = 224
    """Pixels of a side of the crops that loaders give."""
    batch_size: int = 64
    """Images of a batch."""
    model_images_per_s: float | None = 1000.0
    """Speed of the pretended model, for a second measurement that shows the wait share (null: none)."""
    bandwidths_mib_per_s: list[float] = field(default_factory=list)
    """Throttles, each by itself, for ours and for one file per image."""
    latencies_ms: list[float] = field(default_factory=list)
    """Milliseconds before the first byte, each a throttle by itself."""
    requests_per_s: list[float] = field(default_factory=list)
    """Requests a second, each a throttle by itself."""
    repeats: int = 5
    """Measurements of each loader, interleaved."""
    measure_s: float = 2.0
    """Each measurement takes as many whole epochs as this needs, at least one; of `validate`: its seconds."""
    settle_s: float = 1.0
    """Seconds before `validate` measures, in which loaders start and the first windows come."""
    cold_cache: bool = False
    """Drop what a loader reads from the page cache before each measurement, as far as the kernel allows."""
    static_copies: bool = True
    """Also build copies at reduced quality, as large as the scan groups, to compare their space with."""
    on_error: str = "skip"
    """As `records.on_error`."""
    seed: int = 0
    """Seed of orders and crops."""
    measure: bool = True
    """false: measure nothing, draw what `out` holds."""
    plan: PlanConfig | None = None
    """A cluster to predict for; then nothing is measured, and every setting outside `plan` is unused."""
    validate: bool = False
    """Instead of the above: measure scans under throttles with `processes` readers that share each, beside
    what the throughput model predicts. Adds `repeats` to those that `out` holds already."""
    runs_roots: list[str] = field(default_factory=list)
    """For `validate`: folders of finished runs, whose times to accuracy are held against the model's too."""
    processes: list[int] = field(default_factory=lambda: [1, 2, 4])
    """Readers that share a storage, for `validate`."""
    work: str = "data/throughput"
    """Every format of the images is built here, once."""
    out: str = "outputs/throughput/${dataset.name}"
    """Folder of rows, tables and figures."""

    def __post_init__(self) -> None:
        self.work, self.out = expanded(self.work), expanded(self.out)
        self.peers_python = self.peers_python and expanded(self.peers_python)
        self.runs_roots = [expanded(root) for root in self.runs_roots]
        require(bool(self.scans or self.peers), "scans", self.scans, "at least one loader, here or in peers")
        for key in ("image_size", "batch_size", "repeats"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        require(self.measure_s > 0, "measure_s", self.measure_s, "seconds above 0")
        require(self.settle_s > 0, "settle_s", self.settle_s, "seconds above 0")
        model = self.model_images_per_s
        require(model is None or model > 0, "model_images_per_s", model, "null or a rate above 0")
        for key in ("bandwidths_mib_per_s", "latencies_ms", "requests_per_s"):
            require(all(limit > 0 for limit in getattr(self, key)), key, getattr(self, key), "limits above 0")
        require(
            bool(self.processes) and all(count >= 1 for count in self.processes),
            "processes",
            self.processes,
            "numbers of reading processes, at least 1",
        )
        require(not (self.validate and self.plan), "validate", self.validate, "false where a plan is given")
        require(self.on_error in ("fail", "skip"), "on_error", self.on_error, "fail or skip")
