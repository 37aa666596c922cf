"""Run the jobs of a sweep as separate commands on SLURM or on a Ray cluster.

A job is the command that a user would type, `python -m experiments.train seed=1 ...`, with two environment
variables that name its sweep and number. So only strings are pickled, a restarted job continues its run, and
writes the same log as a single run. All machines must see the same files.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig
from rich.console import Console

from pcr_exp.cli.jobs import (
    JOB_VARIABLE,
    LOGS,
    PlannedJob,
    SweepFolder,
    forget_outcome,
    read_plan,
    sweep_folder,
    write_plan,
)
from pcr_exp.cli.sweep_state import OPEN, read_jobs
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.places import COMMAND, as_typed
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.provenance import SWEEP_VARIABLE
from pcr_exp.system.ray_cluster import connect_to_ray

_TIMEOUT_S = 60.0
"""Seconds that a job has to save a checkpoint and end."""
_LOOK_S = 0.1
"""Seconds between two looks at whether a job has ended."""


@dataclass(slots=True)
class JobCommand:
    """Command of a job, to be called on the machine where it runs."""

    command: list[str]
    folder: str
    """Its working directory."""
    variables: dict[str, str]
    log: str | None = None
    """File that its output is appended to; None: the output of this process."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __call__(self) -> None:
        """Run the command and wait for it to end.

        Raises:
            RunError: it failed; SLURM and Ray then count the job as failed, too.
        """
        variables = os.environ | self.variables
        with ExitStack() as stack:
            log = None if self.log is None else stack.enter_context(Path(self.log).open("ab"))
            process = stack.enter_context(
                subprocess.Popen(self.command, cwd=self.folder, env=variables, stdout=log, stderr=log)
            )
            self._process = process
            try:
                _wait_for_end(process)
                status = process.wait()
            except BaseException:
                self.end()
                raise
        if status != 0:
            raise RunError(f"{' '.join(self.command)} ended with status {status}.")

    def end(self) -> None:
        """Ask the job to save a checkpoint and end, wait for it, and kill it if it takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            if not _wait_for_end(self._process, _TIMEOUT_S):
                self._process.kill()
            self._process.poll()

    def checkpoint(self) -> Any:
        """Return what submitit is to requeue; it calls this at the time limit or on preemption."""
        from submitit.helpers import DelayedSubmission

        self.end()
        return DelayedSubmission(JobCommand(self.command, self.folder, self.variables, self.log))


def _wait_for_end(process: subprocess.Popen[bytes], timeout_s: float = math.inf) -> bool:
    """Wait until a process has ended; return whether it has.

    Unlike `Popen.wait`, this takes no lock, so that a signal handler may wait while its thread does: submitit
    calls `checkpoint` in one.
    """
    began_s = time.monotonic()
    while process.returncode is None and not _has_ended(process.pid):
        if time.monotonic() - began_s > timeout_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def job_commands(
    config: DictConfig, jobs: Sequence[PlannedJob], program: Sequence[str] | None
) -> list[JobCommand]:
    """Return a command for each job, started the way this process was."""
    folder = sweep_folder(config.hydra)
    variables = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return [
        JobCommand(
            [*(program or [sys.executable]), *_started(), *job.overrides, "hydra.mode=RUN"],
            str(config.hydra.runtime.cwd),
            {**variables, SWEEP_VARIABLE: str(folder), JOB_VARIABLE: str(job.number)},
        )
        for job in jobs
    ]


def _started() -> list[str]:
    """Return the module or script that this process was started with, without Python and its settings."""
    name, _, runner = sys.argv[0].partition(" ")
    if name == COMMAND and runner:  # set by `pcr-exp train`
        return ["-m", "pcr_exp", runner]
    spec = sys.modules["__main__"].__spec__
    return ["-m", spec.name] if spec is not None else [str(Path(sys.argv[0]).resolve())]


def jobs_to_start(
    folder: Path, job_overrides: Sequence[Sequence[str]]
) -> tuple[list[PlannedJob], list[PlannedJob]]:
    """Return all jobs of a sweep, and those to start: jobs that already wait or run are left out.

    A job keeps its number when a sweep is extended. Finished jobs are started, too: each finds its run either
    finished or out of date.
    """
    before = {tuple(job.overrides): job for job in read_plan(folder)}
    under_way = {job.number for job in read_jobs(folder) if job.state in OPEN and job.is_handed_over}
    next_number = 1 + max((job.number for job in before.values()), default=-1)
    jobs, starting = [], []
    for overrides in job_overrides:
        job = before.get(tuple(overrides))
        if job is None:
            job = PlannedJob(next_number, list(overrides))
            next_number += 1
        jobs.append(job)
        if job.number not in under_way:
            starting.append(job)
    others = [job for job in before.values() if job not in jobs]
    return sorted([*jobs, *others], key=lambda job: job.number), starting


def hand_to_slurm(
    config: DictConfig, job_overrides: Sequence[Sequence[str]], settings: Mapping[str, Any]
) -> None:
    """Submit the jobs, write their ids to the sweep's plan, and return.

    Raises:
        ConfigError: submitit is not installed, there is no SLURM, or a parameter is unknown.
    """
    folder = sweep_folder(config.hydra)
    executor = _open_executor(folder, config.hydra.job.name, settings)
    jobs, starting = jobs_to_start(folder, job_overrides)
    for job in starting:
        forget_outcome(folder, job.number)
    commands = job_commands(config, starting, settings["program"])
    with executor.batch():
        submitted = [executor.submit(command) for command in commands]
    ids = {job.number: str(handed.job_id) for job, handed in zip(starting, submitted, strict=True)}
    write_plan(
        folder,
        [
            replace(job, job_id=ids[job.number], cluster=settings["cluster"]) if job.number in ids else job
            for job in jobs
        ],
    )
    SweepFolder.handed_over = True
    Console(stderr=True).print(
        f"{len(starting)} of {len(jobs)} jobs submitted; see "
        + as_typed(f"python -m experiments.sweep status {folder.name}"),
        soft_wrap=True,
    )


def _open_executor(folder: Path, name: str, settings: Mapping[str, Any]) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            "hydra/launcher=slurm needs submitit: pip install submitit, or pcr-exp[slurm]."
        ) from error
    given = {
        "name": name,
        "timeout_min": settings["timeout_min"],
        "cpus_per_task": settings["cpus_per_task"],
        "gpus_per_node": settings["gpus_per_node"],
        "mem_gb": settings["mem_gb"],
        "slurm_partition": settings["partition"],
        "slurm_array_parallelism": settings["max_parallel"],
        "slurm_additional_parameters": dict(settings["additional"]) or None,
    }
    try:
        executor = submitit.AutoExecutor(folder / LOGS, cluster=settings["cluster"])
        executor.update_parameters(**{key: value for key, value in given.items() if value is not None})
    except (RuntimeError, ValueError, TypeError, NameError) as error:
        raise ConfigError(
            f"hydra/launcher=slurm with hydra.launcher.cluster={settings['cluster']}: {error} Start this on "
            "a machine that can submit jobs, or try it here with hydra.launcher.cluster=local."
        ) from error
    return executor


def run_on_ray(
    config: DictConfig, job_overrides: Sequence[Sequence[str]], first_number: int, settings: Mapping[str, Any]
) -> None:
    """Run the jobs as tasks of a Ray cluster and wait for all; a failed job does not stop the others.

    Their output is written to the sweep's folder. `first_number` is the number of the first job.

    Raises:
        ConfigError: ray is not installed, or there is no cluster at the address.
    """
    folder = sweep_folder(config.hydra)
    ray = connect_to_ray(settings["address"], "hydra.launcher.address")
    jobs = [PlannedJob(number, list(each)) for number, each in enumerate(job_overrides, first_number)]
    run = ray.remote(
        num_cpus=settings["num_cpus"], num_gpus=settings["num_gpus"], max_retries=settings["max_retries"]
    )(_run)
    commands = job_commands(config, jobs, settings["program"])
    make_folder(folder / LOGS)
    for job, command in zip(jobs, commands, strict=True):
        command.log = str(folder / LOGS / f"job-{job.number:04d}.txt")
    tasks = [run.remote(command) for command in commands]
    try:
        ray.wait(tasks, num_returns=len(tasks), fetch_local=False)
    except BaseException:
        for task in tasks:
            ray.cancel(task)
        ray.wait(tasks, num_returns=len(tasks), timeout=_TIMEOUT_S, fetch_local=False)
        raise


def _run(command: JobCommand) -> None:
    command()
