"""The jobs of a sweep: each job writes a small file about itself, wherever it runs.

A launcher may run jobs in other processes or on other machines, so the process that began the sweep does not
know their state from its own memory. The files lie in the sweep's folder, `hydra.sweep.dir`.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.table import Table

from pcr_exp.cli.answers import Answer
from pcr_exp.cli.terminal import print_table
from pcr_exp.errors import RunError
from pcr_exp.redaction import redacted
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.lock import hold
from pcr_exp.system.provenance import SWEEP_VARIABLE
from pcr_exp.system.words import counted

JOB_VARIABLE = "PCR_EXP_JOB"
"""Environment variable with the number of a job that runs as its own command; SWEEP_VARIABLE is also set."""

PLAN = "sweep.json"

LOGS = "logs"
"""Subfolder of the sweep's folder for the output of jobs that run elsewhere."""

_HANDS_OVER = ".SlurmLauncher"

BEGUN, FAILED, DIED, INTERRUPTED, NOT_BEGUN = "begun", "failed", "died", "interrupted", "not begun"


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of one job. `status` is what the task returned, such as `finished`, or one of the above."""

    job: str
    status: str
    detail: str = ""
    amounts: dict[str, float] = field(default_factory=dict)
    """Amounts that a planned job would take, by name with unit, such as `read_bytes`."""

    run: str = ""
    """Directory of its run, if the job trains."""
    began_s: float | None = None
    ended_s: float | None = None
    """Unix time, like `began_s`."""

    @property
    def failed(self) -> bool:
        """Whether the sweep has failed because of this job."""
        return self.status in (FAILED, DIED)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of a sweep, begun or not."""

    number: int
    overrides: list[str]
    """The job's own overrides, as typed."""
    job_id: str | None = None
    """The scheduler's job id, if the job was handed over."""
    cluster: str | None = None
    """The scheduler: `slurm` or `local`."""


class SweepFolder(Callback):
    """Hydra callback with which the process that begins a sweep prepares the folder of its outcomes.

    Each job reads `fail_fast`: once a job has failed, jobs that have not begun do not begin.
    """

    begun: ClassVar[Path | None] = None
    """Folder of the sweep that this process began."""
    handed_over: ClassVar[bool] = False
    """Whether its jobs continue elsewhere after this process ends."""
    alive: ClassVar[ExitStack] = ExitStack()
    """Holds the lock that shows other processes that this one still begins jobs."""

    def __init__(self, fail_fast: bool = False) -> None:
        self.fail_fast = fail_fast

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = sweep_folder(config.hydra)
        make_folder(folder)
        SweepFolder.begun, SweepFolder.handed_over = folder, False
        if str(config.hydra.get("launcher", {}).get("_target_")).endswith(_HANDS_OVER):
            return  # jobs of an earlier command may still run: the launcher knows which
        SweepFolder.alive.enter_context(hold(sweep_lock(folder), lambda holder: _in_use(folder, holder)))
        for file in _files(folder):  # left by an earlier sweep in a folder chosen by hand
            file.unlink()
        write_plan(folder, _planned(config.hydra))


def sweep_folder(hydra: Any) -> Path:
    """Return the folder of a sweep's outcomes, in the process that began it and in each of its jobs."""
    return Path(hydra.runtime.cwd) / hydra.sweep.dir


def is_stopped(folder: Path) -> bool:
    """Whether this job must not begin, because another one has failed and the sweep fails fast."""
    sweep = HydraConfig.get().callbacks.get("sweep")
    return sweep is not None and bool(sweep.fail_fast) and any(o.failed for o in read_outcomes(folder))


def handed_over_as() -> tuple[Path, int] | None:
    """Return the sweep's folder and the number of a job that runs as its own command; None elsewhere."""
    folder, number = os.environ.get(SWEEP_VARIABLE), os.environ.get(JOB_VARIABLE)
    return None if folder is None or number is None else (Path(folder), int(number))


def read_plan(folder: Path) -> list[PlannedJob]:
    """Read all jobs of a sweep, by number; empty if its launcher or sweeper is not known.

    Raises:
        RunError: the file is damaged.
    """
    try:
        return [PlannedJob(**job) for job in json.loads((folder / PLAN).read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise RunError(
            f"{folder / PLAN}, which lists the sweep's jobs, is damaged ({error}). Repeat the command: "
            "it writes the file again, and skips finished runs."
        ) from error


def write_plan(folder: Path, jobs: Iterable[PlannedJob]) -> None:
    """Write the jobs of a sweep, replacing an earlier plan."""
    make_folder(folder)
    write_atomic(folder / PLAN, [json.dumps([asdict(job) for job in jobs], indent=1).encode()])


def _planned(hydra: Any) -> list[PlannedJob]:
    """Return the jobs that Hydra's own sweeper makes of a command line; empty for other sweepers."""
    if not str(hydra.get("sweeper", {}).get("_target_")).endswith(".BasicSweeper"):
        return []
    given = [f"{key}={value}" for key, value in (hydra.sweeper.get("params") or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*given, *hydra.overrides.task])
    jobs = BasicSweeper.split_arguments(parsed, None)
    return [PlannedJob(i, list(job)) for i, job in enumerate(job for batch in jobs for job in batch)]


def write_outcome(folder: Path, number: int, outcome: Outcome) -> None:
    """Write the state of job `number`, replacing an earlier one."""
    make_folder(folder)
    write_atomic(folder / f"job-{number:04d}{_rank()}.json", [json.dumps(redacted(asdict(outcome))).encode()])


def forget_outcome(folder: Path, number: int) -> None:
    """Remove a job's outcome, if there is one, before the job begins anew."""
    (folder / f"job-{number:04d}{_rank()}.json").unlink(missing_ok=True)


def read_numbered(folder: Path) -> dict[int, Outcome]:
    """Read the outcomes so far, by job number."""
    return {int(file.stem.split("-")[1]): Outcome(**json.loads(file.read_text())) for file in _files(folder)}


def read_outcomes(folder: Path) -> list[Outcome]:
    """Read the outcomes so far, as `read_numbered` but without the numbers."""
    return list(read_numbered(folder).values())


def job_lock(folder: Path, number: int) -> Path:
    """Return the path of the lock that a job holds while it runs."""
    return folder / f"job-{number:04d}{_rank()}.lock"


def sweep_lock(folder: Path) -> Path:
    """Return the path of the lock held by the process that begins jobs, until the last has ended."""
    return folder / f"sweep{_rank()}.lock"


def _in_use(folder: Path, holder: str) -> RunError:
    return RunError(
        f"{folder}: {holder} runs a sweep in this folder. Wait for it to end, or give another "
        "hydra.sweep.dir."
    )


def read_ended(folder: Path, *, interrupted: bool) -> list[Outcome]:
    """Read the outcomes once no job runs any more; a job without an end was interrupted or died."""
    status, detail = (
        (INTERRUPTED, "") if interrupted else (DIED, "its process ended without reporting an outcome")
    )
    return [
        replace(outcome, status=status, detail=detail) if outcome.status == BEGUN else outcome
        for outcome in read_outcomes(folder)
    ]


def print_outcomes(outcomes: Sequence[Outcome], answers: Sequence[Answer | None] = ()) -> None:
    """Print a table of a sweep's jobs, the failed ones last, with the result and figure of each."""
    num_failed = sum(outcome.failed for outcome in outcomes)
    table = Table(title=f"{counted(len(outcomes), 'job')}, {num_failed} failed", title_justify="left")
    known = [*answers, *[None] * (len(outcomes) - len(answers))]
    headlines = sorted({answer.headline for answer in known if answer})
    columns = ["job", "status", *headlines, *(["figure"] if headlines else []), "detail"]
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in headlines else "left")
    for outcome, answer in sorted(zip(outcomes, known, strict=True), key=lambda pair: pair[0].failed):
        scores = [answer.score if answer and answer.headline == headline else "" for headline in headlines]
        figure = [answer.figure if answer else ""] if headlines else []
        cells = map(escape, (outcome.job, outcome.status, *scores, *figure, outcome.detail))
        table.add_row(*cells, style="red" if outcome.failed else "")
    print_table(table, stderr=True)
    if totals := total_amounts(outcomes):
        print(f"in all: {describe_amounts(totals)}")


def total_amounts(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Sum the amounts of planned jobs; an amount that is unknown for any of them is left out."""
    planned = [outcome.amounts for outcome in outcomes if outcome.amounts]
    known = [name for name in AMOUNTS if planned and all(name in amounts for amounts in planned)]
    return {name: sum(amounts[name] for amounts in planned) for name in known}


def describe_amounts(amounts: Mapping[str, float]) -> str:
    """Describe the known amounts: `about 1.5 hours, 120.0 MB read, 3.1 MB of disk`."""
    return ", ".join(AMOUNTS[name](amounts[name]) for name in AMOUNTS if name in amounts)


def _time(seconds: float) -> str:
    return f"about {seconds / 3600:.1f} hours" if seconds >= 3600 else f"about {seconds / 60:.1f} minutes"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


AMOUNTS: dict[str, Callable[[float], str]] = {
    "seconds": _time,
    "read_bytes": lambda num_bytes: f"{_size(num_bytes)} read",
    "disk_bytes": lambda num_bytes: f"{_size(num_bytes)} of disk",
}
"""Amounts of a planned job, with a formatter for each."""


def escape(text: object) -> str:
    """Escape text so that rich prints it literally."""
    return str(text).replace("[", r"\[")


def _files(folder: Path) -> list[Path]:
    name = re.compile(rf"job-\d+{_rank()}\.json")
    return sorted(path for path in folder.glob("job-*.json") if name.fullmatch(path.name))


def _rank() -> str:
    # Each of several processes that train together runs the whole sweep and reports its own jobs.
    rank = os.environ.get("RANK", "0")
    return "" if rank == "0" else f"-rank{rank}"


@dataclass(slots=True)
class RunningJob:
    """A job that runs in this process, and its file in the sweep's folder."""

    folder: Path
    number: int
    outcome: Outcome

    def tell(self, outcome: Outcome) -> None:
        """Write the job's current state, keeping the known run directory and start time."""
        known = self.outcome
        self.outcome = replace(outcome, run=outcome.run or known.run, began_s=known.began_s)
        write_outcome(self.folder, self.number, self.outcome)

    def end(self, outcome: Outcome) -> None:
        """Write the job's final state and end time."""
        self.tell(replace(outcome, ended_s=time.time()))


_current: ContextVar[RunningJob | None] = ContextVar("the job of a sweep that runs here", default=None)


@contextmanager
def running_job(folder: Path, number: int, name: str) -> Iterator[RunningJob]:
    """Within, mark the job as begun and hold its lock, which a killed job releases.

    Raises:
        RunError: another process runs this job.
    """
    make_folder(folder)

    def in_use(holder: str) -> RunError:
        return RunError(
            f"{name}: this job of {folder} is already run by {holder}. Wait for it to end, or stop it."
        )

    with hold(job_lock(folder, number), in_use):
        job = RunningJob(folder, number, Outcome(name, BEGUN, began_s=time.time()))
        job.tell(job.outcome)
        before, sweep = _current.set(job), os.environ.get(SWEEP_VARIABLE)
        os.environ[SWEEP_VARIABLE] = str(folder)  # a run reports its sweep to the tracker
        try:
            yield job
        finally:
            _current.reset(before)
            os.environ.pop(SWEEP_VARIABLE)
            if sweep is not None:
                os.environ[SWEEP_VARIABLE] = sweep


def note_run(run: Path) -> None:
    """Record the run directory of this process's job; does nothing outside a sweep."""
    job = _current.get()
    if job is not None:
        job.tell(replace(job.outcome, run=str(run.absolute())))
