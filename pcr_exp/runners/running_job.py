"""The job of a sweep that this process runs: what it tells the others, and the lock that shows it alive."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from pcr_exp.errors import RunError
from pcr_exp.runners.outcomes import BEGUN, Outcome, job_lock, write_outcome
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.lock import hold
from pcr_exp.system.provenance import SWEEP_VARIABLE


@dataclass(slots=True)
class RunningJob:
    """Its file beside those of other jobs."""

    folder: Path
    number: int
    outcome: Outcome

    def tell(self, outcome: Outcome) -> None:
        """Write how it stands now; what is known of its run and of its beginning stays."""
        known = self.outcome
        self.outcome = replace(outcome, run=outcome.run or known.run, began_s=known.began_s)
        write_outcome(self.folder, self.number, self.outcome)

    def end(self, outcome: Outcome) -> None:
        """Write how it ended."""
        self.tell(replace(outcome, ended_s=time.time()))


_current: ContextVar[RunningJob | None] = ContextVar("the job of a sweep that runs here", default=None)


@contextmanager
def running_job(folder: Path, number: int, name: str) -> Iterator[RunningJob]:
    """Within, the job is said to have begun, and holds its lock: one that was killed does not.

    Raises:
        RunError: another process runs this job.
    """
    make_folder(folder)

    def in_use(holder: str) -> RunError:
        return RunError(f"{name}: this job of {folder} is run by {holder}. Wait for it to end, or stop it.")

    with hold(job_lock(folder, number), in_use):
        job = RunningJob(folder, number, Outcome(name, BEGUN, began_s=time.time()))
        job.tell(job.outcome)
        before, sweep = _current.set(job), os.environ.get(SWEEP_VARIABLE)
        os.environ[SWEEP_VARIABLE] = str(folder)  # a run tells its tracker which sweep it is of
        try:
            yield job
        finally:
            _current.reset(before)
            os.environ.pop(SWEEP_VARIABLE)
            if sweep is not None:
                os.environ[SWEEP_VARIABLE] = sweep


def note_run(run: Path) -> None:
    """Tell which directory the run of this process's job has; does nothing outside a sweep."""
    job = _current.get()
    if job is not None:
        job.tell(replace(job.outcome, run=str(run.absolute())))
