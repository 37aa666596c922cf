"""Inspect sweeps, wherever their jobs run, from the files of jobs and the directories of runs.

    python -m experiments.sweep status                  # every sweep, in a line each
    python -m experiments.sweep status <name>           # its jobs: done, running, failed, time left
    python -m experiments.sweep wait <name>             # until no job waits or runs; status 1 if one failed
    python -m experiments.sweep table <name>            # one table of all runs, also as table.csv
    python -m experiments.sweep stop <name>             # jobs save a checkpoint and end
    python -m experiments.sweep wandb experiment=...    # the same grid as a file for `wandb sweep`

A sweep's name is that of its folder, `hydra.sweep.dir`. To resume a sweep, repeat its command with the same
folder: finished runs are skipped, interrupted ones continue. More values extend the sweep.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from rich.table import Table

from pcr_exp.cli.jobs import LOGS, PLAN, escape, job_lock, sweep_lock
from pcr_exp.cli.sweep_state import (
    FAILURES,
    OPEN,
    WAITING,
    JobState,
    last_evaluation,
    read_jobs,
    seconds_left,
)
from pcr_exp.cli.terminal import print_table
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import composed, named_packages, prepare_hydra
from pcr_exp.errors import ConfigError, PcrExpError, RunError
from pcr_exp.places import as_typed
from pcr_exp.system import MIB
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.lock import holder_of, is_held
from pcr_exp.system.words import counted

ROOT = Path("outputs/runs/.sweeps")
TABLE = "table.csv"
_COLUMNS = ("number", "job", "state", "run", "epoch", "train_s", "wait_s", "read_mib", "detail")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Exits with status 1 if a job failed or there is no such sweep."""
    parser = argparse.ArgumentParser(
        prog=as_typed("python -m experiments.sweep"),
        description=as_typed(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("do", choices=[*_DO, "wait", "wandb"])
    parser.add_argument(
        "name", nargs="?", help="name of a folder below --root, or its path; last: the newest"
    )
    parser.add_argument("more", nargs="*", help="for wandb: the arguments that `-m` would take")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of all sweeps (default: %(default)s)")
    parser.add_argument("--every-s", type=float, default=10.0, help="for wait: seconds between two checks")
    options = parser.parse_args(arguments)
    try:
        if options.do == "status" and options.name is None:
            folders = _folders(options.root)
            for folder in folders:
                print(f"{folder.name}: {describe_jobs(read_jobs(folder))}")
            if not folders:
                print(f"there are no sweeps in {options.root}")
            return
        if options.do == "wandb":
            grid = wandb_sweep([*filter(None, [options.name]), *options.more])
            print(yaml.safe_dump(grid, sort_keys=False), end="")
            return
        folder = find_sweep(options.root, options.name)
        if not read_jobs(folder):
            raise RunError(f"{folder} lists no job of a sweep: none has begun yet, or it is another folder.")
        code = wait(folder, options.every_s) if options.do == "wait" else _DO[options.do](folder)
    except (PcrExpError, HydraException) as error:
        print(error, file=sys.stderr)
        code = 1
    sys.exit(code)


def find_sweep(root: Path, name: str | None) -> Path:
    """Return the folder of a sweep.

    Raises:
        RunError: there is no sweep of this name.
    """
    folders = _folders(root)
    if name is not None and (Path(name).is_dir() or (root / name).is_dir()):
        return root / name if (root / name).is_dir() else Path(name)
    if name == "last" and folders:
        return folders[-1]
    known = ", ".join(folder.name for folder in folders[-5:]) or "none"
    raise RunError(f"there is no sweep {name!r} in {root}; the newest there are: {known}.")


def describe_jobs(jobs: Sequence[JobState]) -> str:
    """Describe the number of jobs in each state, and the time left."""
    counts = Counter(job.state for job in jobs)
    parts = [f"{num} {state}" for state, num in counts.most_common()]
    left_s = seconds_left(jobs)
    if any(job.state in OPEN for job in jobs):
        parts.append("time left unknown" if left_s is None else f"about {left_s / 60:.0f} minutes left")
    return f"{counted(len(jobs), 'job')}: {', '.join(parts) or 'none'}"


def status(folder: Path) -> int:
    """Print every job. Return 1 if one failed."""
    jobs = read_jobs(folder)
    table = Table("job", "state", "progress", "minutes", "run", "detail", title_justify="left")
    for job in jobs:
        progress = "" if job.progress is None else f"{job.progress:.0%}"
        minutes = "" if job.lasted_s is None else f"{job.lasted_s / 60:.1f}"
        run = "" if job.run is None else job.run.name
        style = "red" if job.state in FAILURES else ""
        table.add_row(
            escape(job.job), job.state, progress, minutes, escape(run), escape(job.detail), style=style
        )
    print_table(table)
    print(describe_jobs(jobs))
    return int(any(job.state in FAILURES for job in jobs))


def wait(folder: Path, every_s: float) -> int:
    """Poll every `every_s` seconds until no job waits or runs. Return 1 if one failed."""
    told = ""
    while True:
        jobs = read_jobs(folder)
        if (words := describe_jobs(jobs)) != told:
            print(told := words, flush=True)
        if not any(job.state in OPEN for job in jobs):
            return int(any(job.state in FAILURES for job in jobs))
        time.sleep(every_s)


def table(folder: Path) -> int:
    """Write and print a table of each job with its run's last evaluation. Return 1 if one failed."""
    jobs = read_jobs(folder)
    rows = [row_of(job) for job in jobs]
    scores = sorted({key for row in rows for key in row} - set(_COLUMNS))
    columns = [*_COLUMNS[:-1], *scores, _COLUMNS[-1]]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(folder / TABLE, [text.getvalue().encode()])
    print(text.getvalue(), end="")
    print(folder / TABLE, file=sys.stderr)
    return int(any(job.state in FAILURES for job in jobs))


def row_of(job: JobState) -> dict[str, Any]:
    """Return a job's row: its overrides, its state, and the results of its last full evaluation, if any."""
    row: dict[str, Any] = {"number": job.number, "job": job.job, "state": job.state, "detail": job.detail}
    evaluation = None if job.run is None else last_evaluation(job.run)
    if job.run is not None:
        row["run"] = job.run.name
    if evaluation is not None:
        row |= {key: evaluation[key] for key in ("epoch", "train_s", "wait_s")}
        row["read_mib"] = evaluation["bytes_read"] / MIB
        row |= {key: value for key, value in evaluation.items() if key.startswith("val_")}
    return row


def stop(folder: Path) -> int:
    """Ask every open job to end; running ones save a checkpoint first. Return 1 if any is out of reach."""
    jobs = [job for job in read_jobs(folder) if job.state in OPEN]
    handed_over = [job for job in jobs if _cancel(folder, job)]
    # The command that began the sweep begins no other job once it was asked to end. It may run one itself.
    locks = {
        job.number: sweep_lock(folder)
        if job.state == WAITING and not job.is_handed_over
        else job_lock(folder, job.number)
        for job in jobs
    }
    holders = {number: pid for number, lock in locks.items() if (pid := _holder_here(lock)) is not None}
    for pid in set(holders.values()):
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGTERM)
    stopped = [job for job in jobs if job in handed_over or job.number in holders]
    print(f"{len(stopped)} of {counted(len(jobs), 'job')} asked to end")
    if others := [job.number for job in jobs if job not in stopped]:
        print(f"jobs {others} cannot be ended from here. End the command that began them.", file=sys.stderr)
    return int(bool(others))


def _cancel(folder: Path, job: JobState) -> bool:
    if job.job_id is None or job.cluster != "slurm":
        return False
    import submitit

    submitit.SlurmJob(folder / LOGS, job.job_id).cancel(check=False)
    return True


def _holder_here(lock: Path) -> int | None:
    """Return the process that holds a lock; None if it is not one of this host."""
    holder = holder_of(lock) if is_held(lock) else None  # a killed process leaves its holder file behind
    return holder.pid if holder is not None and holder.host == socket.gethostname() else None


def _folders(root: Path) -> list[Path]:
    """Return the folders of sweeps, in the order in which they began."""
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(folders, key=_began_ns)


def _began_ns(folder: Path) -> int:
    plan = folder / PLAN  # the folder itself changes with `table`
    return (plan if plan.exists() else folder).stat().st_mtime_ns


def wandb_sweep(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the grid of an experiment, or of comma-separated values, as a W&B sweep configuration.

    Args:
        overrides: As on the command line of `train`.

    Raises:
        ConfigError: there is only one job.
        hydra.errors.HydraException: an override cannot be read, or names an option that does not exist.
    """
    prepare_hydra(named_packages(overrides), {"train": TrainConfig})
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    fixed = [str(override.input_line) for override in parsed if not override.is_sweep_override()]
    config = composed("train", fixed, with_hydra=True)
    params = OmegaConf.to_container(config.hydra.sweeper.params or OmegaConf.create({}))
    grid = {str(key): f"{key!s}={values}" for key, values in params.items()}  # type: ignore[union-attr]
    for override in parsed:  # typed values take precedence over the experiment's
        key = override.get_key_element()
        if override.is_sweep_override():
            grid[key] = str(override.input_line)
        else:
            grid.pop(key, None)
    swept = OverridesParser.create().parse_overrides(list(grid.values()))
    parameters: dict[str, Any] = {}
    for override in swept:
        if override.is_sweep_override():
            parameters[override.get_key_element()] = {"values": list(override.sweep_string_iterator())}
        else:
            fixed.append(str(override.input_line))
    if not parameters:
        raise ConfigError(
            f"{' '.join(overrides) or 'no arguments'}: this is one job, not a grid. Give an experiment that "
            "has a grid, or comma-separated values, such as seed=0,1,2."
        )
    program = as_typed("python -m experiments.train").split()
    return {
        "method": "grid",
        "name": next((o.removeprefix("experiment=") for o in fixed if o.startswith("experiment=")), "train"),
        "project": str(config.tracking.get("project", "pcr-exp")),
        "parameters": parameters,
        "command": [
            "${env}",
            *program,
            *fixed,
            "hydra.mode=RUN",
            *([] if any(o.startswith("tracking=") for o in fixed) else ["tracking=wandb_online"]),
            "${args_no_hyphens}",
        ],
    }


_DO = {"status": status, "table": table, "stop": stop}
