"""All measurements in turn, A B C A B C ..., so that changes on the machine meet all loaders alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import fmean
from typing import Any

from pcr_exp.errors import LoaderError
from pcr_exp.measuring.peers.records import epoch_bytes
from pcr_exp.measuring.peers.registry import LINKS, Job, decoder_label, format_of, is_ours, scan_of
from pcr_exp.measuring.throughput.bound import Bound
from pcr_exp.measuring.throughput.formats import Built, Workspace, build_format, list_files
from pcr_exp.measuring.throughput.measure import Measurement
from pcr_exp.measuring.throughput.plan import is_free, num_epochs
from pcr_exp.measuring.throughput.process import LoaderProcess
from pcr_exp.system import MIB
from pcr_exp.system.page_cache import drop, resident_share_of

log = logging.getLogger(__name__)

Row = dict[str, Any]


class Lane:
    """A loader with one decoder."""

    def __init__(self, workspace: Workspace, job: Job, process: LoaderProcess) -> None:
        """Measures an epoch without limits, for nobody: to warm up, and to know how long one takes.

        Raises:
            LoaderError: the loader failed.
        """
        self._process = process
        self._folder = workspace.format_folder(format_of(job.loader))
        self._epoch_images = len(workspace.images)
        if is_ours(job.loader):
            self._files = list_files(self._folder / scan_of(job.loader).encoding)
            self.epoch_bytes = epoch_bytes(self._folder, job.loader)
        else:
            self._files = list_files(self._folder)
            self.epoch_bytes = sum(file.stat().st_size for file in self._files)
        self._told_still_cached = False
        self._free_epoch_s = self._ask(job).total_s

    def measure(self, job: Job, *, measure_s: float, cold_cache: bool, with_bound: bool = False) -> Row:
        """What one measurement gave, with its settings.

        `with_bound` measures decoding and cropping alone too: half of `measure_s` before, half after.

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
        bounds = [self._bound(job, measure_s / 2)] if with_bound else []
        measured = self._ask(replace(job, num_epochs=epochs))
        bounds += [self._bound(job, measure_s / 2)] if with_bound else []
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
            "cores": job.cores,
            "num_epochs": epochs,
            "num_images": measured.num_images,
            "total_s": measured.total_s,
            "images_per_s": images_per_s,
            "mib_per_s": images_per_s * image_bytes / MIB,
            "cpu_s_per_image": measured.cpu_s / measured.num_images,
            "wait_share": measured.wait_s / measured.total_s,
            "first_batch_s": measured.first_batch_s,
            "epoch_bytes": self.epoch_bytes,
            "num_files": len(self._files),
            "cached_share": cached,
            "bound_images_per_s": fmean(bound.images_per_s for bound in bounds) if bounds else None,
            "bound_cpu_s_per_image": fmean(bound.cpu_s_per_image for bound in bounds) if bounds else None,
        }

    def _ask(self, job: Job) -> Measurement:
        return Measurement(**self._request("measure", job, epoch_images=self._epoch_images))

    def _bound(self, job: Job, measure_s: float) -> Bound:
        return Bound(**self._request("bound", job, measure_s=measure_s))

    def _request(self, do: str, job: Job, **more: float) -> dict[str, Any]:
        return self._process.ask({"do": do, "folder": str(self._folder), "job": job.to_json(), **more})

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


Progress = Callable[[int, int], None]


class Contest:
    """The loaders of a plan, each in a process of its own. A context manager that ends them.

    A peer that fails is absent from then on, with its error as the reason; if one of ours fails, all ends.
    """

    def __init__(self, workspace: Workspace, jobs: Sequence[Job], *, peers_python: str | None = None) -> None:
        """`peers_python` runs the loaders that are not ours; by default this interpreter does."""
        self.failed: dict[str, str] = {}
        """Peers that failed, with the reason."""
        self.built: dict[str, Built] = {}
        """The formats that were made for peers, by name; links to the original files are none."""
        self._workspace = workspace
        self._jobs = list(jobs)
        self._peers_python = peers_python
        self._lanes: dict[tuple[Any, ...], Lane] = {}
        self._processes = ExitStack()

    def warm_up(self, progress: Progress) -> None:
        """Start every loader, build what it reads, and run one epoch that is not counted.

        Raises:
            LoaderError: one of ours failed.
        """
        first = {_key(job): job for job in reversed(self._jobs)}
        for number, (key, job) in enumerate(reversed(first.items()), start=1):
            try:
                self._lanes[key] = self._open(job)
            except LoaderError as error:
                self._note_failure(job, error)
            progress(number, len(first))

    def rows(
        self,
        repeats: int,
        progress: Progress,
        *,
        measure_s: float,
        cold_cache: bool,
        with_bound: bool = False,
    ) -> Iterator[Row]:
        """One row per measurement, in the order in which they are made; `repeat` counts from 0.

        With `with_bound`, what decoding alone gives is measured around every free-running one of ours.

        Raises:
            LoaderError: one of ours failed.
        """
        total = repeats * len(self._jobs)
        turns = [(repeat, job) for repeat in range(repeats) for job in self._jobs]
        for number, (repeat, job) in enumerate(turns, start=1):
            bounded = with_bound and is_ours(job.loader) and is_free(job)
            row = self._measure(
                replace(job, seed=job.seed + repeat),
                measure_s=measure_s,
                cold_cache=cold_cache,
                with_bound=bounded,
            )
            if row is not None:
                yield {"repeat": repeat, **row}
            progress(number, total)

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def _open(self, job: Job) -> Lane:
        python = None if is_ours(job.loader) else self._peers_python
        process = self._processes.enter_context(LoaderProcess(job.loader, python))
        if not is_ours(job.loader):
            name = format_of(job.loader)
            built = build_format(self._workspace, name, process)
            if name != LINKS:
                self.built[name] = built
        return Lane(self._workspace, job, process)

    def _measure(self, job: Job, **how: Any) -> Row | None:
        if job.loader in self.failed:
            return None
        lane = self._lanes[_key(job)]
        try:
            return lane.measure(job, **how)
        except LoaderError as error:
            self._note_failure(job, error)
            return None

    def _note_failure(self, job: Job, error: LoaderError) -> None:
        if is_ours(job.loader):
            raise error
        log.warning("%s is left out from here on: %s", job.loader, error)
        self.failed[job.loader] = str(error)


def _key(job: Job) -> tuple[Any, ...]:
    """What jobs share that one lane measures."""
    return job.loader, job.decode, job.settings.antialias, job.cores
