"""Which measurements a configuration asks for."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import ceil, lcm
from typing import Any

from pcr_exp.config.records import NUM_GROUPS
from pcr_exp.config.scan import scan_of
from pcr_exp.config.storage import StorageConfig
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.peers.registry import PEERS, Job, absence
from pcr_exp.system import MIB

FILE_PER_IMAGE = "image_folder_pil"
"""The peer that is measured under throttles too: it is read through our storage layer."""
UNLIMITED = StorageConfig(name="unlimited")
COUNTED = (
    "whole epochs in the middle of a stream that goes on over their edges, of every loader; neither its "
    "start, which `first batch` tells, nor its end"
)
_ENDLESS = 10**6
"""Epochs; whoever consumes them stops at a time."""


def plan_jobs(config: ThroughputConfig) -> list[Job]:
    """Every measurement of one repeat: as fast as it goes, at a model's speed, under each throttle.

    Raises:
        ConfigError: there is no such scan level, peer or `decode`.
    """
    ours = own_jobs(config)
    loaders = [*ours, *_present_peers(config)]
    throttled = [job for job in loaders if job.loader not in PEERS or job.loader == FILE_PER_IMAGE]
    paced = [replace(job, model_images_per_s=config.model_images_per_s) for job in loaders]
    return [
        *loaders,
        *(_on_one_core(job) for job in ours if config.one_core),
        *(paced if config.model_images_per_s is not None else []),
        *(replace(job, storage=limit) for limit in limits(config) for job in throttled),
    ]


def is_free(job: Job) -> bool:
    """Whether nothing but the loader itself limits a job."""
    return job.storage == UNLIMITED and job.model_images_per_s is None


def _on_one_core(job: Job) -> Job:
    return replace(job, cores=1, settings=replace(job.settings, num_workers=1))


def shared_jobs(config: ThroughputConfig) -> list[Job]:
    """What any number of processes do together: as fast as they go, at a model's speed, under each throttle.

    Raises:
        ConfigError: there is no such scan level or `decode`, or there is no model.
    """
    if config.model_images_per_s is None:
        raise ConfigError(
            "model_images_per_s=null: wanted a rate, the compute of the model that is validated."
        )
    free = [replace(job, num_epochs=_ENDLESS) for job in own_jobs(config)]
    paced = [replace(job, model_images_per_s=config.model_images_per_s) for job in free]
    return [*free, *paced, *(replace(job, storage=limit) for limit in limits(config) for job in paced)]


def window_images(config: ThroughputConfig) -> int:
    """Images that storage has handed over with a whole number of records, and a whole number of batches."""
    return lcm(config.batch_size, config.loader.shuffle_records * config.dataset.images_per_record)


def absent_peers(config: ThroughputConfig) -> dict[str, str]:
    """Peers that were asked for and cannot be measured, with the reason.

    What another interpreter has is not looked up: there, a peer that is missing fails when it is opened.
    """
    if config.peers_python is not None:
        return {}
    reasons = {name: absence(name) for name in config.peers}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def copied_groups(config: ThroughputConfig) -> list[int]:
    """Scan groups that static copies are made for: those measured, but for the whole image."""
    scans = [scan_of(name) for name in config.scans]
    groups = sorted({scan.group for scan in scans if scan.encoding == "pcr" and scan.group < NUM_GROUPS})
    return groups if config.static_copies else []


def describe(config: ThroughputConfig, num_images: int) -> dict[str, Any]:
    """What a reader of the results must know of the settings."""
    keys = ("image_size", "batch_size", "measure_s", "model_images_per_s", "cold_cache", "repeats", "seed")
    return {
        "dataset": config.dataset.name,
        "num_images": num_images,
        "images_per_record": config.dataset.images_per_record,
        **asdict(config.loader),
        **{key: getattr(config, key) for key in keys},
    }


def limits(config: ThroughputConfig) -> list[StorageConfig]:
    """The throttles, each of one limit."""
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
    """Epochs that take about `measure_s`, given what an epoch takes without limits; at least one."""
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
    """Each of our scan levels with each decoder and resize filter, as fast as it goes.

    Raises:
        ConfigError: there is no such scan level or `decode`.
    """
    decodes = config.decodes or [config.loader.decode]
    filters = config.antialiases or [config.loader.antialias]
    settings = [  # refuses unknown ones
        replace(config.loader, decode=decode, antialias=antialias)
        for decode in decodes
        for antialias in filters
    ]
    names = [scan_of(name).name for name in config.scans]
    return [replace(job_of(config, name, s.decode), settings=s) for s in settings for name in names]


def _present_peers(config: ThroughputConfig) -> list[Job]:
    absent = absent_peers(config)
    return [job_of(config, name, PEERS[name].decode) for name in config.peers if name not in absent]


def job_of(config: ThroughputConfig, name: str, decode: str) -> Job:
    """One epoch of a loader, as fast as it goes."""
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
