"""Measure our scan levels under each storage limit, interleaved, in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.measuring.throughput import records
from pcr_exp.measuring.throughput.job import Job, limits, num_epochs, own_decoder, own_jobs
from pcr_exp.measuring.throughput.measure import Measurement, measure
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.system import MIB
from pcr_exp.system.machine import drop, resident_share_of

log = logging.getLogger(__name__)
Row = dict[str, Any]
LEVELS_COUNTED = (
    "whole epochs in the middle of a stream that goes on over their edges; neither the loader's start, which "
    "`first batch` tells, nor its end"
)


class Lane:
    """One loader with one decoder, measured repeatedly."""

    def __init__(
        self, job: Job, files: Sequence[Path], epoch_bytes: int, ask: Callable[[Job], Measurement]
    ) -> None:
        """Measure one epoch without limits and report no row: it warms up and gives an epoch's duration.

        Args:
            job: The loader's job, without limits.
            files: Files that it reads.
            epoch_bytes: Bytes of these files that an epoch reads.
            ask: Measures a job.
        """
        self._files = files
        self._epoch_bytes = epoch_bytes
        self._ask = ask
        self._told_still_cached = False
        self._free_epoch_s = ask(job).total_s

    def measure(
        self, job: Job, *, measure_s: float, cold_cache: bool, around: Callable[[], None] | None = None
    ) -> Row:
        """Measure a job and return its row; `around` is called right before and right after."""
        epochs = num_epochs(
            job,
            measure_s=measure_s,
            free_epoch_s=self._free_epoch_s,
            epoch_bytes=self._epoch_bytes,
            num_requests=len(self._files),
        )
        if cold_cache:
            self._drop(job)
        cached = resident_share_of(self._files)
        if around is not None:
            around()
        measured = self._ask(replace(job, num_epochs=epochs))
        if around is not None:
            around()
        image_bytes = self._epoch_bytes * epochs / measured.num_images
        images_per_s = measured.num_images / measured.total_s
        return {
            "loader": job.loader,
            "decode": job.decode,
            "storage": job.storage.name,
            "bandwidth_mib_per_s": job.storage.bandwidth_mib_per_s,
            "latency_ms": job.storage.latency_ms,
            "requests_per_s": job.storage.requests_per_s,
            "model_images_per_s": job.model_images_per_s,
            "cores": job.cores,
            "num_epochs": epochs,
            "num_images": measured.num_images,
            "total_s": measured.total_s,
            "images_per_s": images_per_s,
            "mib_per_s": images_per_s * image_bytes / MIB,
            "cpu_s_per_image": measured.cpu_s / measured.num_images,
            "wait_share": measured.wait_s / measured.total_s,
            "first_batch_s": measured.first_batch_s,
            "epoch_bytes": self._epoch_bytes,
            "num_files": len(self._files),
            "cached_share": cached,
            "bound_images_per_s": None,
            "bound_cpu_s_per_image": None,
        }

    def _drop(self, job: Job) -> None:
        """Drop the files from the page cache; warn once if some stayed."""
        kept = drop(self._files)
        if kept and not self._told_still_cached:
            self._told_still_cached = True
            path, reason = next(iter(kept.items()))
            log.warning(
                "%s: %d of its %d files stayed in the page cache despite cold_cache=true, the first of them "
                "%s: %s. The column cached_share of the rows shows how much.",
                job.loader,
                len(kept),
                len(self._files),
                path,
                reason,
            )


def measure_levels(
    config: ThroughputConfig, split: Path, progress: Callable[[int, int], None]
) -> Iterator[Row]:
    """Yield one row per measurement, in the order A B C A B C, so that drift affects all levels alike.

    Args:
        config: Gives scans, decoders and filters, measured without limits and under each of its limits.
        split: Folder of a split's records, with pcr/ and baseline/ in it.
        progress: Called with the number of finished measurements and their total.

    Raises:
        ConfigError: a scan level or `decode` does not exist.
        LoaderError: as `measure`.
    """
    free = own_jobs(config)
    lanes = {_key(job): _open(job, split) for job in free}
    jobs = [*free, *(replace(job, storage=limit) for limit in limits(config) for job in free)]
    turns = [(repeat, job) for repeat in range(config.repeats) for job in jobs]
    for number, (repeat, job) in enumerate(turns, start=1):
        seeded = replace(job, seed=job.seed + repeat)
        row = lanes[_key(job)].measure(seeded, measure_s=config.measure_s, cold_cache=config.cold_cache)
        label = own_decoder(job.decode, antialias=job.settings.antialias)
        yield {"repeat": repeat, **row, "decode": label}
        progress(number, len(turns))


def _open(job: Job, split: Path) -> Lane:
    scan = scan_of(job.loader)
    index = RecordSet(LocalStorage(split), scan.encoding).index
    files = sorted(path.resolve() for path in (split / scan.encoding).rglob("*") if path.is_file())
    ask = partial(measure, records, split, epoch_images=index.num_samples)
    return Lane(job, files, index.epoch_bytes(scan.group), ask)


def _key(job: Job) -> tuple[str, str, bool]:
    return job.loader, job.decode, job.settings.antialias
