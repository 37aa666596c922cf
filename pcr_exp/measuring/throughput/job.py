"""Jobs of a throughput measurement, and the jobs that a configuration defines for our loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from pcr_exp.config.crops import CropSettings, crops_of
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.system import MIB

AUGMENT = AugmentConfig()
"""Augmentation of all loaders: random-resized-crop (8 to 100 % of the area, 3:4 to 4:3), horizontal flip."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One measurement of one loader over whole, shuffled epochs."""

    loader: str
    """A scan level of our loader, or a peer's name in the catalogue."""
    decode: str
    """The decoder: `loader.decode` for our loader, the peer's own from the catalogue."""
    label: str
    """Name of the label in batches."""
    storage: StorageConfig
    settings: LoaderConfig
    """Settings of our loader, except `decode`, which the field above sets. Peers get its `num_workers` and
    `prefetch_batches`; the catalogue names their resize filters."""
    image_size: int
    batch_size: int
    num_epochs: int = 1
    seed: int = 0
    bucket: str | None = None
    """File of a throttle shared by several processes (None: this process has its own)."""
    model_images_per_s: float | None = None
    """Images/s that the consumer of the batches takes; None: as many as arrive."""
    cores: int | None = None
    """Cores that the loader is confined to, with one worker each; None: all cores."""

    @property
    def crops(self) -> CropSettings:
        """Crop settings of our loader."""
        return crops_of(AUGMENT, self.settings, self.image_size)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        """Build the job from `to_json`'s values."""
        nested = {
            "storage": StorageConfig(**values["storage"]),
            "settings": LoaderConfig(**values["settings"]),
        }
        return cls(**{**values, **nested})


class Images(Protocol):
    """A batch, uint8 [B, H, W, 3] or [B, 3, H, W]: a torch, numpy or tensorflow array."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


class Peer(Protocol):
    """A loader: a module such as `records`."""

    def batches(self, folder: Path, job: Job) -> Iterator[Images]:
        """Open the loader and yield the batches of `job.num_epochs` epochs. Workers end with the iterator."""
        ...


FILTERED = ", filtered"


def own_decoder(decode: str, *, antialias: bool) -> str:
    """Return the label of our loader's decoder; it names the resize filter with `antialias`."""
    return f"{decode}{FILTERED}" if antialias else decode


UNLIMITED = StorageConfig(name="unlimited")


def is_free(job: Job) -> bool:
    """Return whether only the loader itself limits a job."""
    return job.storage == UNLIMITED and job.model_images_per_s is None


def describe(config: ThroughputConfig, num_images: int) -> dict[str, Any]:
    """Return the settings that a reader of the results must know."""
    keys = ("image_size", "batch_size", "measure_s", "model_images_per_s", "cold_cache", "repeats", "seed")
    return {
        "dataset": config.dataset.name,
        "num_images": num_images,
        "images_per_record": config.dataset.images_per_record,
        **asdict(config.loader),
        **{key: getattr(config, key) for key in keys},
    }


def limits(config: ThroughputConfig) -> list[StorageConfig]:
    """Return the throttles, each with a single limit."""
    return [
        *(
            StorageConfig(name=f"{rate:g} MiB/s", bandwidth_mib_per_s=rate)
            for rate in config.bandwidths_mib_per_s
        ),
        *(StorageConfig(name=f"{wait:g} ms", latency_ms=wait) for wait in config.latencies_ms),
        *(StorageConfig(name=f"{rate:g} requests/s", requests_per_s=rate) for rate in config.requests_per_s),
    ]


def num_epochs(
    job: Job, *, measure_s: float, free_epoch_s: float, epoch_bytes: int, num_requests: int
) -> int:
    """Return how many epochs take about `measure_s`, at least one, given an epoch's time without limits."""
    storage, workers = job.storage, max(1, job.settings.num_workers)
    epoch_s = max(
        free_epoch_s,
        epoch_bytes / MIB / storage.bandwidth_mib_per_s if storage.bandwidth_mib_per_s else 0.0,
        num_requests / storage.requests_per_s if storage.requests_per_s else 0.0,
        num_requests * storage.latency_ms / 1e3 / workers,
        num_requests * storage.seek_ms / 1e3,
    )
    return max(1, ceil(measure_s / epoch_s))


def own_jobs(config: ThroughputConfig) -> list[Job]:
    """Return a job without limits for each of our scan levels with each decoder and resize filter.

    Raises:
        ConfigError: a scan level or `decode` does not exist.
    """
    decodes = config.decodes or [config.loader.decode]
    filters = config.antialiases or [config.loader.antialias]
    settings = [  # refuses unknown values
        replace(config.loader, decode=decode, antialias=antialias)
        for decode in decodes
        for antialias in filters
    ]
    names = [scan_of(name).name for name in config.scans]
    return [replace(job_of(config, name, s.decode), settings=s) for s in settings for name in names]


def job_of(config: ThroughputConfig, name: str, decode: str) -> Job:
    """Return a job of one epoch without limits."""
    return Job(
        loader=name,
        decode=decode,
        label=config.dataset.label,
        storage=UNLIMITED,
        settings=config.loader,
        image_size=config.image_size,
        batch_size=config.batch_size,
        seed=config.seed,
    )
