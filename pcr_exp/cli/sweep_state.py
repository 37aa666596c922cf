"""State of a sweep, from its jobs' files and the directories of their runs, wherever they run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcr_exp.cli.jobs import (
    BEGUN,
    DIED,
    LOGS,
    NOT_BEGUN,
    PlannedJob,
    job_lock,
    read_numbered,
    read_plan,
    sweep_lock,
)
from pcr_exp.errors import PcrExpError
from pcr_exp.system.lock import is_held

WAITING, RUNNING = "waiting", "running"
OPEN = (WAITING, RUNNING)
FAILURES = ("failed", DIED, NOT_BEGUN)
_GONE = ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
"""SLURM's states of jobs that no longer run."""


@dataclass(frozen=True, slots=True)
class JobState:
    """State of one job of a sweep, at the time when it was read."""

    number: int
    job: str
    state: str
    """`waiting`, `running`, or how it ended, such as `finished`, `skipped`, `failed` and `died`."""
    detail: str = ""
    run: Path | None = None
    lasted_s: float | None = None
    """Seconds since it began, until its end or now."""
    progress: float | None = None
    """Share of its epochs that a running job has completed."""
    job_id: str | None = None
    cluster: str | None = None

    @property
    def is_handed_over(self) -> bool:
        """Whether a scheduler has the job, so that it outlives the command that began the sweep."""
        return self.job_id is not None


def read_jobs(folder: Path) -> list[JobState]:
    """Read the state of every job of the sweep in this folder, by number."""
    plan = {job.number: job for job in read_plan(folder)}
    outcomes = read_numbered(folder)
    states = []
    for number in sorted(plan.keys() | outcomes.keys()):
        planned = plan.get(number, PlannedJob(number, []))
        outcome = outcomes.get(number)
        known = (planned.job_id, planned.cluster)
        if outcome is None:
            state, detail = _before_it_began(folder, planned)
            job = " ".join(planned.overrides)
            states.append(JobState(number, job, state, detail, None, None, None, *known))
            continue
        run = Path(outcome.run) if outcome.run else None
        until_s = outcome.ended_s or time.time()
        lasted_s = None if outcome.began_s is None else until_s - outcome.began_s
        state, detail, progress = outcome.status, outcome.detail, None
        if state == BEGUN and is_held(job_lock(folder, number)):
            state, progress = RUNNING, _progress(run)
        elif state == BEGUN:
            state, detail = DIED, "its process ended without reporting an outcome"
        states.append(JobState(number, outcome.job, state, detail, run, lasted_s, progress, *known))
    return states


def seconds_left(jobs: Sequence[JobState]) -> float | None:
    """Estimate the seconds until the last job ends, if as many run at once as now; None if no pace is known.

    The pace of a running job follows from its completed epochs, or else from the mean of the other jobs.
    """
    running = [job for job in jobs if job.state == RUNNING]
    num_waiting = sum(job.state == WAITING for job in jobs)
    if not running and not num_waiting:
        return 0.0
    took_s = [job.lasted_s for job in jobs if job.state == "finished" and job.lasted_s]
    took_s += [job.lasted_s / job.progress for job in running if job.lasted_s and job.progress]
    if not took_s:
        return None
    mean_s = sum(took_s) / len(took_s)
    left_s = [
        (job.lasted_s or 0.0) * (1 / job.progress - 1)
        if job.progress
        else max(0.0, mean_s - (job.lasted_s or 0.0))
        for job in running
    ]
    return max([(sum(left_s) + num_waiting * mean_s) / max(1, len(running)), *left_s])


def last_evaluation(run: Path) -> dict[str, Any] | None:
    """Return the last row of a run that evaluates the original images; None if no such row can be read."""
    from pcr_exp.runs.directory import RunDirectory  # torch, which `--help` and reading a plan do without
    from pcr_exp.runs.rows import read_rows
    from pcr_exp.training.columns import with_declared

    try:
        directory = RunDirectory(run)
        manifest = directory.manifest()
        rows = read_rows(directory.rows_path, with_declared(manifest.columns if manifest else ()))
    except (OSError, PcrExpError):
        return None
    full = [row for row in rows if row["kind"] == "eval" and row["eval_group"] == "full"]
    return full[-1] if full else None


def _progress(run: Path | None) -> float | None:
    row = None if run is None else last_evaluation(run)
    if run is None or row is None:
        return None
    from pcr_exp.runs.directory import RunDirectory

    epochs = RunDirectory(run).config()["training"]["epochs"]
    return min(1.0, row["epoch"] / epochs)


def _before_it_began(folder: Path, job: PlannedJob) -> tuple[str, str]:
    """Return the state of a job that has written nothing, and the reason."""
    if job.job_id is None:  # the command that began the sweep begins the job, too
        over = not is_held(sweep_lock(folder))
        return (NOT_BEGUN, "the command that began the sweep has ended") if over else (WAITING, "")
    detail = _why_gone(folder, job)
    return (DIED, detail) if detail else (WAITING, "")


def _why_gone(folder: Path, job: PlannedJob) -> str:
    """Return why a job that has not begun never will; empty if it still may, or if that is unknown."""
    if job.job_id is None or job.cluster != "slurm":
        return ""
    try:
        import submitit

        state = str(submitit.SlurmJob(folder / LOGS, job.job_id).state)
    except Exception:  # unknown without sacct
        return ""
    return f"SLURM says {state} of its job {job.job_id}" if state.startswith(_GONE) else ""
