"""Measured rates of processes that share a storage, to hold the throughput model against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.measuring.peers.catalog import OURS, decoder_label, scan_of
from pcr_exp.measuring.throughput.formats import Workspace
from pcr_exp.measuring.throughput.plan import shared_jobs, window_images
from pcr_exp.measuring.throughput.shared import Readers
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

_WARM_UP_S = 8.0
"""In which processes import what they need."""


def validation_rows(
    config: ThroughputConfig, workspace: Workspace, progress: Callable[[int, int], None]
) -> Iterator[dict[str, Any]]:
    """One row per repeat, number of processes and job, jobs in turn; `repeat` counts from 0.

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
            readers.measure(jobs[0], settle_s=_WARM_UP_S, measure_s=config.measure_s, window_images=window)
            for repeat in range(config.repeats):
                for job in jobs:
                    rate = readers.measure(
                        replace(job, seed=job.seed + repeat),
                        settle_s=config.settle_s,
                        measure_s=config.measure_s,
                        window_images=window,
                    )
                    yield {
                        "repeat": repeat,
                        "num_processes": count,
                        "scan": job.loader,
                        "decode": decoder_label(job.loader, job.decode, antialias=job.settings.antialias),
                        "storage": job.storage.name,
                        "bandwidth_mib_per_s": job.storage.bandwidth_mib_per_s,
                        "latency_ms": job.storage.latency_ms,
                        "requests_per_s": job.storage.requests_per_s,
                        "model_images_per_s": job.model_images_per_s,
                        **_reads(indexes, job.loader),
                        "images_per_s": rate.images_per_s,
                        "slowest_images_per_s": rate.slowest_images_per_s,
                        "num_images": rate.num_images,
                        "cpu_s_per_image": rate.cpu_s_per_image,
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
