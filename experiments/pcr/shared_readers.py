"""Joint rates of several processes that read from one throttled storage at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import lcm
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.loaders.contest import workspace_of
from experiments.loaders.formats import Workspace
from experiments.loaders.peers.catalogue import OURS
from experiments.loaders.process import Consumed, LoaderProcess
from experiments.pcr.model_validation import add_validation
from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.measuring.throughput.job import Job, describe, limits, own_decoder, own_jobs
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import is_limited
from pcr_exp.storage.throttle import Throttle
from pcr_exp.system.progress import counting_bar

_ENDLESS = 10**6
"""Number of epochs; the consumer stops at a set time."""


def shared_jobs(config: ThroughputConfig) -> list[Job]:
    """Return the jobs for any number of processes: unpaced, paced by a model, and paced under each throttle.

    Raises:
        ConfigError: a scan level or `decode` does not exist, or there is no model.
    """
    if config.model_images_per_s is None:
        raise ConfigError(
            "model_images_per_s=null: wanted a rate, the compute of the model that is validated."
        )
    free = [replace(job, num_epochs=_ENDLESS) for job in own_jobs(config)]
    paced = [replace(job, model_images_per_s=config.model_images_per_s) for job in free]
    return [*free, *paced, *(replace(job, storage=limit) for limit in limits(config) for job in paced)]


def window_images(config: ThroughputConfig) -> int:
    """Return the smallest number of images that fills whole shuffle windows and whole batches."""
    return lcm(config.batch_size, config.loader.shuffle_records * config.dataset.images_per_record)


@dataclass(frozen=True, slots=True)
class SharedRate:
    """Joint rate of several processes."""

    images_per_s: float
    slowest_images_per_s: float
    """Rate of the slowest process."""
    num_images: int
    """Number of images counted."""
    cpu_s_per_image: float


class Readers:
    """Processes that measure together. As a context manager, it ends them."""

    def __init__(self, folder: Path, count: int) -> None:
        """Start `count` processes that all read the records in `folder`."""
        self._folder = folder
        self._stack = ExitStack()
        self._processes = [
            self._stack.enter_context(LoaderProcess(f"reader {i + 1} of {count}")) for i in range(count)
        ]

    def measure(
        self, job: Job, *, settle_s: float, measure_s: float, window_images: int, epoch_images: int
    ) -> SharedRate:
        """Run `job` in all processes, each with its own order of samples, sharing its storage's limits.

        Only whole windows in the last `measure_s` of `settle_s + measure_s` are counted.

        Raises:
            LoaderError: a loader failed, or too little arrived to count.
        """
        # Keep the throttle until all have ended: once it is dropped, it removes the bucket that it made.
        throttle = Throttle.create(job.storage) if is_limited(job.storage) else None
        from_s = time.monotonic() + settle_s
        job = replace(job, bucket=None if throttle is None else str(throttle.path))
        with ThreadPoolExecutor(len(self._processes)) as pool:
            asked = [
                pool.submit(
                    process.ask, self._request(replace(job, seed=job.seed + 1000 * i), from_s + measure_s)
                )
                for i, process in enumerate(self._processes)
            ]
            consumed = [Consumed.from_json(answer.result()) for answer in asked]
        return shared_rate(consumed, from_s, from_s + measure_s, window_images, epoch_images)

    def warm(self, job: Job) -> None:
        """Let all processes import what they need and start once, however long that takes.

        Raises:
            LoaderError: a loader failed.
        """
        with ThreadPoolExecutor(len(self._processes)) as pool:
            request = self._request(replace(job, bucket=None), until_s=time.monotonic())
            list(pool.map(lambda process: process.ask(request), self._processes))

    def _request(self, job: Job, until_s: float) -> dict[str, Any]:
        return {"do": "consume", "folder": str(self._folder), "job": job.to_json(), "until_s": until_s}

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def shared_rate(
    consumed: Sequence[Consumed], from_s: float, to_s: float, window_images: int, epoch_images: int
) -> SharedRate:
    """Return the sum of all processes' rates between `from_s` and `to_s`, while all of them read.

    Storage delivers whole records. A rate is therefore taken over whole windows, stretches of batches in
    which as much is read as is consumed. Bursts would distort a rate over parts of windows. Windows restart
    with each epoch, whose last one may be shorter.

    Raises:
        LoaderError: a process began fewer than two windows in that time.
    """
    rates, num_images = [], 0
    for found in consumed:
        begins = [
            arrival
            for arrival in found.arrivals
            if from_s <= arrival.monotonic_s <= to_s
            and arrival.num_before % epoch_images % window_images == 0
        ]
        if len(begins) < 2:
            raise LoaderError(
                f"a reader began {len(begins)} windows of {window_images} images in {to_s - from_s:g} s; "
                "wanted at least two, to take a rate. Raise measure_s, or lower dataset.images_per_record."
            )
        count = begins[-1].num_before - begins[0].num_before
        rates.append(count / (begins[-1].monotonic_s - begins[0].monotonic_s))
        num_images += count
    return SharedRate(
        images_per_s=sum(rates),
        slowest_images_per_s=min(rates),
        num_images=num_images,
        cpu_s_per_image=sum(found.cpu_s for found in consumed) / sum(found.num_images for found in consumed),
    )


def validation_rows(
    config: ThroughputConfig, workspace: Workspace, progress: Callable[[int, int], None]
) -> Iterator[dict[str, Any]]:
    """Yield a row per number of processes, repeat and job, with jobs interleaved; `repeat` counts from 0.

    Raises:
        ConfigError: as `shared_jobs`.
        LoaderError: as `Readers.measure`.
    """
    jobs, window = shared_jobs(config), window_images(config)
    folder = workspace.format_folder(OURS)
    indexes = {encoding: RecordSet(LocalStorage(folder), encoding).index for encoding in ("pcr", "baseline")}
    done, total = 0, len(config.processes) * config.repeats * len(jobs)
    for count in config.processes:
        with Readers(folder, count) as readers:
            readers.warm(jobs[0])
            for repeat, job in product(range(config.repeats), jobs):
                rate = readers.measure(
                    replace(job, seed=job.seed + repeat),
                    settle_s=config.settle_s,
                    measure_s=config.measure_s,
                    window_images=window,
                    epoch_images=indexes[scan_of(job.loader).encoding].num_samples,
                )
                yield {
                    "repeat": repeat,
                    "num_processes": count,
                    "scan": job.loader,
                    "decode": own_decoder(job.decode, antialias=job.settings.antialias),
                    "storage": job.storage.name,
                    "bandwidth_mib_per_s": job.storage.bandwidth_mib_per_s,
                    "latency_ms": job.storage.latency_ms,
                    "requests_per_s": job.storage.requests_per_s,
                    "model_images_per_s": job.model_images_per_s,
                    **_reads(indexes, job.loader),
                    **asdict(rate),
                }
                done += 1
                progress(done, total)


def _reads(indexes: dict[str, RecordIndex], loader: str) -> dict[str, float]:
    scan = scan_of(loader)
    index = indexes[scan.encoding]
    return {
        "image_bytes": index.mean_prefix_bytes(scan.group),
        "images_per_record": index.num_samples / len(index.records),
    }


def validate(config: ThroughputConfig) -> None:
    """Measure processes that share a storage, and add the rows to `config.out`."""
    workspace, _ = workspace_of(config)
    with counting_bar("measurements") as tell:
        rows = pd.DataFrame(validation_rows(config, workspace, tell))
    settings = describe(config, len(workspace.images)) | {"settle_s": config.settle_s}
    alike = {key: value for key, value in settings.items() if key not in ("seed", "repeats")}
    add_validation(config.out, rows, alike)
