"""One loader, ready to be measured: its process, what it reads, and how long an epoch takes it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from pcr_exp.measuring.peers.catalog import decoder_label, format_of, is_ours, scan_of
from pcr_exp.measuring.peers.protocol import Job
from pcr_exp.measuring.peers.records import epoch_bytes
from pcr_exp.measuring.throughput.formats import Workspace, list_files
from pcr_exp.measuring.throughput.measure import Measurement
from pcr_exp.measuring.throughput.plan import num_epochs
from pcr_exp.measuring.throughput.process import LoaderProcess
from pcr_exp.system.page_cache import drop, resident_share_of

log = logging.getLogger(__name__)

Row = dict[str, Any]


class Lane:
    """A loader with one decoder."""

    def __init__(self, workspace: Workspace, job: Job, process: LoaderProcess) -> None:
        """Runs an epoch or two without limits, uncounted: to warm up, and to know how long one takes.

        Raises:
            LoaderError: the loader failed.
        """
        self._process = process
        self._folder = workspace.format_folder(format_of(job.loader))
        if is_ours(job.loader):
            self._files = list_files(self._folder / scan_of(job.loader).encoding)
            self.epoch_bytes = epoch_bytes(self._folder, job.loader)
        else:
            self._files = list_files(self._folder)
            self.epoch_bytes = sum(file.stat().st_size for file in self._files)
        self._told_still_cached = False
        warm = self._ask(job)
        if warm.first_batch_s > warm.total_s / 2:
            warm = self._ask(job)  # what is compiled or imported once says nothing of an epoch's length
        self._free_epoch_s = warm.total_s

    def measure(self, job: Job, *, measure_s: float, cold_cache: bool) -> Row:
        """What one measurement gave, with its settings.

        Raises:
            LoaderError: the loader failed.
        """
        epochs = num_epochs(
            job,
            measure_s=measure_s,
            free_epoch_s=self._free_epoch_s,
            epoch_bytes=self.epoch_bytes,
            num_requests=len(self._files),
        )
        if cold_cache:
            self._drop(job)
        cached = resident_share_of(self._files)
        measured = self._ask(replace(job, num_epochs=epochs))
        image_bytes = self.epoch_bytes * epochs / measured.num_images
        images_per_s = measured.num_images / measured.total_s
        return {
            "loader": job.loader,
            "decode": decoder_label(job.loader, job.decode, antialias=job.settings.antialias),
            "storage": job.storage.name,
            "bandwidth_mib_per_s": job.storage.bandwidth_mib_per_s,
            "latency_ms": job.storage.latency_ms,
            "requests_per_s": job.storage.requests_per_s,
            "model_images_per_s": job.model_images_per_s,
            "num_epochs": epochs,
            "num_images": measured.num_images,
            "total_s": measured.total_s,
            "images_per_s": images_per_s,
            "mib_per_s": images_per_s * image_bytes / 2**20,
            "cpu_s_per_image": measured.cpu_s / measured.num_images,
            "wait_share": measured.wait_s / measured.total_s,
            "first_batch_s": measured.first_batch_s,
            "epoch_bytes": self.epoch_bytes,
            "num_files": len(self._files),
            "cached_share": cached,
        }

    def _ask(self, job: Job) -> Measurement:
        request = {"do": "measure", "folder": str(self._folder), "job": job.to_json()}
        return Measurement(**self._process.ask(request))

    def _drop(self, job: Job) -> None:
        """Drop the files from the page cache, and say so, once, where that did not work."""
        kept = drop(self._files)
        if kept and not self._told_still_cached:
            self._told_still_cached = True
            path, reason = next(iter(kept.items()))
            log.warning(
                "%s: %d of its %d files stayed in the page cache though cold_cache=true, the first of them "
                "%s: %s. Rows say how much in cached_share.",
                job.loader,
                len(kept),
                len(self._files),
                path,
                reason,
            )
