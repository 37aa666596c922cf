"""The configuration of `python -m experiments.throughput`, and of the cluster that it plans for."""

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
from pcr_exp.config.loader import LoaderConfig, StorageConfig

_FOR_SPEED_UPS = "baseline among the scan levels, for speed-ups are over it"
_WITH_BASELINE = Bound(lambda by_level: "baseline" in by_level, _FOR_SPEED_UPS)
_DOLLARS = at_least(0, "dollars, 0 or more")


_SIZES, _EPOCHS, _LIMITS = (each(above(0).holds, f"{what} above 0") for what in ("sizes", "epochs", "limits"))
_RATES = any_each(above(0).holds, "at least one rate, all above 0")


@dataclass(kw_only=True, slots=True)
class PlannedDataConfig:
    """The cluster's training images: given here, or read from the indexes of records on disk."""

    name: str = MISSING
    """The images' name in figures."""
    records: str | None = None
    """Folder of a split's records, with pcr/ and baseline/ in it, which has all numbers below; null: they are
    given here."""
    num_images: int | None = None
    """Images in an epoch."""
    images_per_record: int | None = None
    """Images that one request reads."""
    image_bytes: Annotated[dict[str, float], _SIZES] = field(default_factory=dict)
    """Mean bytes per image up to each scan level; `baseline` among them."""

    def __post_init__(self) -> None:
        stated = bool(self.num_images and self.images_per_record and self.image_bytes)
        wanted = "a folder of records, or null and num_images, images_per_record and image_bytes beside it"
        require((self.records is None) == stated, "plan.data.records", self.records, wanted)
        check_fields(self, "plan.data")
        has_baseline = not stated or "baseline" in self.image_bytes
        require(has_baseline, "plan.data.image_bytes", self.image_bytes, _FOR_SPEED_UPS)


@dataclass(kw_only=True, slots=True)
class PlanConfig:
    """Workers that train one model together and read from one storage system."""

    name: str = MISSING
    """The cluster's name in figures."""
    workers: Annotated[int, at_least(1)] = MISSING
    """Workers, each with an accelerator that it reads and decodes for."""
    cores_per_worker: Annotated[float, above(0, "cores above 0")] = MISSING
    """CPU cores that decode."""
    model_images_per_s: Annotated[dict[str, float], _RATES] = MISSING
    """Images/s that one worker's accelerator trains, per model."""
    decode_images_per_s: Annotated[dict[str, float], _RATES, _WITH_BASELINE] = MISSING
    """Images/s that one core decodes and crops, per scan level; other levels are not planned."""
    storage: StorageConfig = MISSING
    """Shared by all workers."""
    reads_in_flight: Annotated[int | None, or_null(at_least(1))] = None
    """Most reads at once, for each worker; null: as many as our loader has for this storage."""
    data: PlannedDataConfig = MISSING
    epochs_to_accuracy: Annotated[dict[str, float], _EPOCHS] = field(default_factory=dict)
    """Epochs to the wanted accuracy, per scan level; none: no time to accuracy."""
    cost_per_gb: Annotated[float, _DOLLARS] = 0.0
    """Dollars that the storage's owner bills for 10^9 bytes read, such as egress."""
    cost_per_1000_requests: Annotated[float, _DOLLARS] = 0.0
    """Dollars for a thousand reads; one read is one record up to the scan group."""
    max_workers: Annotated[int, at_least(1)] = 1024
    """The figure over workers goes from 1 to this many, in powers of two."""
    out: str = "outputs/throughput_model/${plan.name}"
    """Folder of the prediction."""

    def __post_init__(self) -> None:
        check_fields(self, "plan")


_PROCESSES = any_each(lambda count: count >= 1, "numbers of reading processes, at least 1")


@dataclass(kw_only=True, slots=True)
class ThroughputConfig(RunnerConfig):
    """Settings of `python -m experiments.throughput`."""

    dataset: DatasetConfig = MISSING
    """Its training images; `dataset.augment` is not used: all loaders do the same standard crop."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """Settings of our loader; peers are given its num_workers and prefetch_batches."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    scans: list[str] = MISSING
    """Scan levels of our loader: baseline, group_1 to group_10."""
    decodes: list[str] = field(default_factory=list)
    """Values of `loader.decode` to measure side by side; none: that of `loader` alone."""
    antialiases: list[bool] = field(default_factory=list)
    """Values of `loader.antialias` to measure side by side; none: that of `loader` alone. Peers have filters
    of their own, or none: the table says which."""
    peers: list[str] = MISSING
    """Loaders of others; one that cannot run here is listed as absent, with the reason."""
    peers_python: Annotated[str | None, PATH] = None
    """The Python interpreter that runs peers, of an environment of their own: some want older versions of our
    packages. null: this one."""
    bound: bool = True
    """Also measure what decoding and cropping alone give, around every measurement of ours at full speed."""
    one_core: bool = False
    """Also measure ours confined to one core, with one worker."""
    image_size: Annotated[int, at_least(1)] = 224
    """Pixels of a side of the crops that loaders give."""
    batch_size: Annotated[int, at_least(1)] = 64
    """Images of a batch."""
    model_images_per_s: Annotated[float | None, or_null(above(0), "null or a rate above 0")] = 1000.0
    """Speed of the pretended model, for a second measurement that shows the wait share (null: none)."""
    bandwidths_mib_per_s: Annotated[list[float], _LIMITS] = field(default_factory=list)
    """Throttles, each by itself, for ours and for one file per image."""
    latencies_ms: Annotated[list[float], _LIMITS] = field(default_factory=list)
    """Milliseconds before the first byte, each a throttle by itself."""
    requests_per_s: Annotated[list[float], _LIMITS] = field(default_factory=list)
    """Requests a second, each a throttle by itself."""
    repeats: Annotated[int, at_least(1)] = 5
    """Measurements of each loader, interleaved."""
    measure_s: Annotated[float, above(0, "seconds above 0")] = 2.0
    """Seconds of a measurement, in whole epochs, at least one; of `validate`: its seconds."""
    settle_s: Annotated[float, above(0, "seconds above 0")] = 1.0
    """Seconds before `validate` measures, in which loaders start and the first windows come."""
    cold_cache: bool = False
    """Drop what a loader reads from the page cache before each measurement, as far as the kernel allows."""
    static_copies: bool = True
    """Also build copies at reduced quality, as large as the scan groups, to compare their space with."""
    on_error: Annotated[str, one_of("fail", "skip")] = "skip"
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
    runs_roots: Annotated[list[str], PATH] = field(default_factory=list)
    """For `validate`: folders of finished runs, whose times to accuracy are held against the model's too."""
    processes: Annotated[list[int], _PROCESSES] = field(default_factory=lambda: [1, 2, 4])
    """Readers that share a storage, for `validate`."""
    work: Annotated[str, PATH] = "data/throughput"
    """Every format of the images is built here, once."""
    out: Annotated[str, PATH] = "outputs/throughput/${dataset.name}"
    """Folder of rows, tables and figures."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(bool(self.scans or self.peers), "scans", self.scans, "at least one loader, here or in peers")
        require(not (self.validate and self.plan), "validate", self.validate, "false where a plan is given")
