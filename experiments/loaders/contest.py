"""The contest of loaders: all measurements take turns, A B C A B C ...

Changes on the machine therefore affect all loaders alike. A configuration defines the measurements.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from experiments.loaders.bound import Bound
from experiments.loaders.formats import (
    Built,
    Workspace,
    build_copies,
    build_format,
    by_encoding,
    list_files,
    open_workspace,
    original_files,
)
from experiments.loaders.peers.catalogue import LINKS, PEERS, absence, decoder_label, format_of, is_ours
from experiments.loaders.process import LoaderProcess
from pcr_exp.analysis.throughput import write_throughput
from pcr_exp.config.scan import scan_of
from pcr_exp.config.scan_scripts import NUM_GROUPS
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.errors import LoaderError
from pcr_exp.measuring.throughput.job import Job, describe, is_free, job_of, limits, own_jobs
from pcr_exp.measuring.throughput.levels import Lane, Row
from pcr_exp.measuring.throughput.measure import Measurement
from pcr_exp.measuring.throughput.records import epoch_bytes
from pcr_exp.records.encode import Progress
from pcr_exp.system.progress import counting_bar

log = logging.getLogger(__name__)


class LoaderLane:
    """A loader with one decoder, in a process of its own."""

    def __init__(self, workspace: Workspace, job: Job, process: LoaderProcess) -> None:
        """Measure one uncounted warm-up epoch, as `Lane` does.

        Raises:
            LoaderError: the loader failed.
        """
        self._process = process
        self._folder = workspace.format_folder(format_of(job.loader))
        self._epoch_images = len(workspace.images)
        if is_ours(job.loader):
            files = list_files(self._folder / scan_of(job.loader).encoding)
            num_bytes = epoch_bytes(self._folder, job.loader)
        else:
            files = list_files(self._folder)
            num_bytes = sum(file.stat().st_size for file in files)
        self._lane = Lane(job, files, num_bytes, self._ask)

    def measure(self, job: Job, *, measure_s: float, cold_cache: bool, with_bound: bool = False) -> Row:
        """Measure a job and return the row, with its settings.

        `with_bound` also measures decoding and cropping alone, for half of `measure_s` before and half after.

        Raises:
            LoaderError: the loader failed.
        """
        bounds: list[Bound] = []

        def around() -> None:
            bounds.append(self._bound(job, measure_s / 2))

        row = self._lane.measure(
            job, measure_s=measure_s, cold_cache=cold_cache, around=around if with_bound else None
        )
        row["decode"] = decoder_label(job.loader, job.decode, antialias=job.settings.antialias)
        if bounds:
            row["bound_images_per_s"] = fmean(bound.images_per_s for bound in bounds)
            row["bound_cpu_s_per_image"] = fmean(bound.cpu_s_per_image for bound in bounds)
        return row

    def _ask(self, job: Job) -> Measurement:
        return Measurement(**self._request("measure", job, epoch_images=self._epoch_images))

    def _bound(self, job: Job, measure_s: float) -> Bound:
        return Bound(**self._request("bound", job, measure_s=measure_s))

    def _request(self, do: str, job: Job, **more: float) -> dict[str, Any]:
        return self._process.ask({"do": do, "folder": str(self._folder), "job": job.to_json(), **more})


class Contest:
    """Context manager that runs the loaders of a plan, each in its own process, and ends the processes.

    A peer that fails is absent from then on, with its error as the reason. A failure of ours ends the run.
    """

    def __init__(self, workspace: Workspace, jobs: Sequence[Job], *, peers_python: str | None = None) -> None:
        """`peers_python` is the interpreter that runs peers (default: the current one)."""
        self.failed: dict[str, str] = {}
        """Peers that failed, with the reason."""
        self.built: dict[str, Built] = {}
        """Formats built for peers, by name, without the links to the original files."""
        self._workspace = workspace
        self._jobs = list(jobs)
        self._peers_python = peers_python
        self._lanes: dict[tuple[Any, ...], LoaderLane] = {}
        self._processes = ExitStack()

    def warm_up(self, progress: Progress) -> None:
        """Start every loader, build its format, and run one uncounted epoch.

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
        """Yield one row per measurement, in the order of measurement; `repeat` counts from 0.

        `with_bound` also measures decoding and cropping alone around our free-running measurements.

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

    def _open(self, job: Job) -> LoaderLane:
        python = None if is_ours(job.loader) else self._peers_python
        process = self._processes.enter_context(LoaderProcess(job.loader, python))
        if not is_ours(job.loader):
            name = format_of(job.loader)
            built = build_format(self._workspace, name, process)
            if name != LINKS:
                self.built[name] = built
        return LoaderLane(self._workspace, job, process)

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
    """Return the settings that all jobs of one lane share."""
    return job.loader, job.decode, job.settings.antialias, job.cores


FILE_PER_IMAGE = "image_folder_pil"
"""The peer that is also measured under throttles, because it reads through our storage layer."""

COUNTED = (
    "whole epochs in the middle of a stream that goes on over their edges, of every loader; neither its "
    "start, which `first batch` tells, nor its end"
)


def plan_jobs(config: ThroughputConfig) -> list[Job]:
    """Return all jobs of one repeat: free-running, on one core, at a model's speed, under each throttle.

    Raises:
        ConfigError: a scan level, peer or `decode` does not exist.
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


def _on_one_core(job: Job) -> Job:
    return replace(job, cores=1, settings=replace(job.settings, num_workers=1))


def absent_peers(config: ThroughputConfig) -> dict[str, str]:
    """Return the requested peers that cannot be measured, with the reason.

    With `peers_python` nothing is checked; a peer missing from that interpreter fails when it is opened.
    """
    if config.peers_python is not None:
        return {}
    reasons = {name: absence(name) for name in config.peers}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def copied_groups(config: ThroughputConfig) -> list[int]:
    """Return the scan groups to make static copies for: those measured, except the whole image."""
    scans = [scan_of(name) for name in config.scans]
    groups = sorted({scan.group for scan in scans if scan.encoding == "pcr" and scan.group < NUM_GROUPS})
    return groups if config.static_copies else []


def _present_peers(config: ThroughputConfig) -> list[Job]:
    absent = absent_peers(config)
    return [job_of(config, name, PEERS[name].decode) for name in config.peers if name not in absent]


def measure(config: ThroughputConfig) -> None:
    """Measure everything that the configuration requests, interleaved, and write it to `config.out`."""
    jobs = plan_jobs(config)
    workers = config.loader.num_workers
    workspace, records = workspace_of(config)
    with Contest(workspace, jobs, peers_python=config.peers_python) as contest:
        with counting_bar("formats, warm-up") as tell:
            contest.warm_up(tell)
        formats = [
            original_files(workspace),
            *by_encoding(workspace, records),
            *contest.built.values(),
            *build_copies(workspace, copied_groups(config), workers),
        ]
        with counting_bar("measurements") as tell:
            turns = contest.rows(
                config.repeats,
                tell,
                measure_s=config.measure_s,
                cold_cache=config.cold_cache,
                with_bound=config.bound,
            )
            rows = pd.DataFrame(turns)
    absent = {**absent_peers(config), **contest.failed}
    settings = {"counted": COUNTED, **describe(config, len(workspace.images))}
    write_throughput(config.out, rows, pd.DataFrame(formats), absent, settings)


def workspace_of(config: ThroughputConfig) -> tuple[Workspace, Built]:
    """Return the workspace of the images and the entry of their records, which are built first if missing."""
    with counting_bar("records") as tell:
        return open_workspace(
            config.dataset,
            Path(config.work),
            on_error=config.on_error,
            num_workers=config.loader.num_workers,
            progress=tell,
        )
