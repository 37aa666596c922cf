"""All measurements in turn, A B C A B C ..., so that changes on the machine meet all alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from pcr_exp.errors import LoaderError
from pcr_exp.measuring.peers.catalog import LINKS, format_of, is_ours
from pcr_exp.measuring.peers.protocol import Job
from pcr_exp.measuring.throughput.formats import Built, Workspace, build_format
from pcr_exp.measuring.throughput.lane import Lane, Row
from pcr_exp.measuring.throughput.process import LoaderProcess

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


class Contest:
    """The loaders of a plan, each in a process of its own. A context manager that ends them.

    A peer that fails is absent from then on, with its error as the reason; if one of ours fails, all ends.
    """

    def __init__(self, workspace: Workspace, jobs: Sequence[Job]) -> None:
        self.failed: dict[str, str] = {}
        """Peers that failed, with the reason."""
        self.built: dict[str, Built] = {}
        """The formats that were made for peers, by name; links to the original files are none."""
        self._workspace = workspace
        self._jobs = list(jobs)
        self._lanes: dict[tuple[str, str, bool], Lane] = {}
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

    def rows(self, repeats: int, progress: Progress, *, measure_s: float, cold_cache: bool) -> Iterator[Row]:
        """One row per measurement, in the order in which they are made; `repeat` counts from 0.

        Raises:
            LoaderError: one of ours failed.
        """
        total = repeats * len(self._jobs)
        turns = [(repeat, job) for repeat in range(repeats) for job in self._jobs]
        for number, (repeat, job) in enumerate(turns, start=1):
            row = self._measure(replace(job, seed=job.seed + repeat), measure_s, cold_cache)
            if row is not None:
                yield {"repeat": repeat, **row}
            progress(number, total)

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def _open(self, job: Job) -> Lane:
        process = self._processes.enter_context(LoaderProcess(job.loader))
        if not is_ours(job.loader):
            name = format_of(job.loader)
            built = build_format(self._workspace, name, process)
            if name != LINKS:
                self.built[name] = built
        return Lane(self._workspace, job, process)

    def _measure(self, job: Job, measure_s: float, cold_cache: bool) -> Row | None:
        if job.loader in self.failed:
            return None
        lane = self._lanes[_key(job)]
        try:
            return lane.measure(job, measure_s=measure_s, cold_cache=cold_cache)
        except LoaderError as error:
            self._note_failure(job, error)
            return None

    def _note_failure(self, job: Job, error: LoaderError) -> None:
        if is_ours(job.loader):
            raise error
        log.warning("%s is left out from here on: %s", job.loader, error)
        self.failed[job.loader] = str(error)


def _key(job: Job) -> tuple[str, str, bool]:
    """What jobs share that one lane measures."""
    return job.loader, job.decode, job.settings.antialias
