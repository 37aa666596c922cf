"""The jobs of a sweep: a small file per job, written by the job itself, wherever it runs.

A launcher may run jobs in other processes or on other machines, so nothing that the process which began the
sweep has in memory can tell. The files lie in the sweep's folder, `hydra.sweep.dir`.
"""

from __future__ import annotations

import json
import os
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
"""In the environment of a job that is a command of its own, beside SWEEP_VARIABLE: the job's number."""

PLAN = "sweep.json"

LOGS = "logs"
"""The folder, in the sweep's, of what jobs print that run elsewhere."""

_HANDS_OVER = ".SlurmLauncher"

BEGUN, FAILED, DIED, INTERRUPTED, NOT_BEGUN = "begun", "failed", "died", "interrupted", "not begun"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job ended; `status` is the task's word, such as `finished`, or one of the above."""

    job: str
    status: str
    detail: str = ""
    amounts: dict[str, float] = field(default_factory=dict)
    """Amounts that a planned job would take, by name and unit, such as `read_bytes`."""

    run: str = ""
    """The directory of its run, of a job that trains."""
    began_s: float | None = None
    ended_s: float | None = None
    """Unix time."""

    @property
    def failed(self) -> bool:
        """Whether the sweep has failed because of this job."""
        return self.status in (FAILED, DIED)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of a sweep, begun or not."""

    number: int
    overrides: list[str]
    """As typed for this job alone."""
    job_id: str | None = None
    """The scheduler's, of a job that was handed over."""
    cluster: str | None = None
    """And the scheduler: `slurm`, or `local`."""


class SweepFolder(Callback):
    """Tells the process that begins a sweep where its jobs' outcomes will lie.

    `fail_fast` is read by each job: after one has failed, those that have not begun do not begin.
    """

    begun: ClassVar[Path | None] = None
    """The folder of the sweep that this process began."""
    handed_over: ClassVar[bool] = False
    """Whether its jobs go on elsewhere when this process ends."""
    alive: ClassVar[ExitStack] = ExitStack()
    """Holds the lock by which others see that this process still begins jobs."""

    def __init__(self, fail_fast: bool = False) -> None:
        self.fail_fast = fail_fast

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = sweep_folder(config.hydra)
        make_folder(folder)
        SweepFolder.begun, SweepFolder.handed_over = folder, False
        if str(config.hydra.get("launcher", {}).get("_target_")).endswith(_HANDS_OVER):
            return  # jobs of an earlier command may be under way: the launcher knows which
        SweepFolder.alive.enter_context(hold(sweep_lock(folder), lambda holder: _in_use(folder, holder)))
        for file in _files(folder):  # of an earlier sweep, where the folder was chosen by hand
            file.unlink()
        write_plan(folder, _planned(config.hydra))


def sweep_folder(hydra: Any) -> Path:
    """The folder of a sweep's outcomes, for the process that began it and for each of its jobs."""
    return Path(hydra.runtime.cwd) / hydra.sweep.dir


def is_stopped(folder: Path) -> bool:
    """In a job: whether it shall not begin, because another one has failed and the sweep is to fail fast."""
    sweep = HydraConfig.get().callbacks.get("sweep")
    return sweep is not None and bool(sweep.fail_fast) and any(o.failed for o in read_outcomes(folder))


def handed_over_as() -> tuple[Path, int] | None:
    """In a job that is a command of its own: its sweep's folder and its number; None in other processes."""
    folder, number = os.environ.get(SWEEP_VARIABLE), os.environ.get(JOB_VARIABLE)
    return None if folder is None or number is None else (Path(folder), int(number))


def read_plan(folder: Path) -> list[PlannedJob]:
    """All jobs of a sweep, by their numbers; none of one whose launcher or sweeper is not known."""
    try:
        return [PlannedJob(**job) for job in json.loads((folder / PLAN).read_text())]
    except FileNotFoundError:
        return []


def write_plan(folder: Path, jobs: Iterable[PlannedJob]) -> None:
    """Write which jobs a sweep has, in place of what was there."""
    make_folder(folder)
    write_atomic(folder / PLAN, [json.dumps([asdict(job) for job in jobs], indent=1).encode()])


def _planned(hydra: Any) -> list[PlannedJob]:
    """The jobs that Hydra's own sweeper makes of a command line; none of another's."""
    if not str(hydra.get("sweeper", {}).get("_target_")).endswith(".BasicSweeper"):
        return []
    given = [f"{key}={value}" for key, value in (hydra.sweeper.get("params") or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*given, *hydra.overrides.task])
    jobs = BasicSweeper.split_arguments(parsed, None)
    return [PlannedJob(i, list(job)) for i, job in enumerate(job for batch in jobs for job in batch)]


def write_outcome(folder: Path, number: int, outcome: Outcome) -> None:
    """Write how job `number` stands, in place of what was there."""
    make_folder(folder)
    write_atomic(folder / f"job-{number:04d}{_rank()}.json", [json.dumps(redacted(asdict(outcome))).encode()])


def forget_outcome(folder: Path, number: int) -> None:
    """Remove what a job wrote, if it did: it is to begin anew."""
    (folder / f"job-{number:04d}{_rank()}.json").unlink(missing_ok=True)


def read_numbered(folder: Path) -> dict[int, Outcome]:
    """The jobs' outcomes so far, by their numbers."""
    return {int(file.stem[4:8]): Outcome(**json.loads(file.read_text())) for file in _files(folder)}


def read_outcomes(folder: Path) -> list[Outcome]:
    """As `read_numbered`, without the numbers."""
    return list(read_numbered(folder).values())


def job_lock(folder: Path, number: int) -> Path:
    """The lock of a job while it runs."""
    return folder / f"job-{number:04d}{_rank()}.lock"


def sweep_lock(folder: Path) -> Path:
    """The lock of the process that begins a sweep's jobs, until the last has ended."""
    return folder / f"sweep{_rank()}.lock"


def _in_use(folder: Path, holder: str) -> RunError:
    return RunError(
        f"{folder}: {holder} runs a sweep in this folder. Wait for it, or give a hydra.sweep.dir."
    )


def read_ended(folder: Path, *, interrupted: bool) -> list[Outcome]:
    """As `read_outcomes`, when no job runs any more: one that began and did not end was stopped or died."""
    status, detail = (INTERRUPTED, "") if interrupted else (DIED, "its process ended without a word")
    return [
        replace(outcome, status=status, detail=detail) if outcome.status == BEGUN else outcome
        for outcome in read_outcomes(folder)
    ]


def print_outcomes(outcomes: Sequence[Outcome], answers: Sequence[Answer | None] = ()) -> None:
    """A sweep's jobs in a table, the failed ones last: what came out of each, and where its figure lies."""
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
    """The sums of what planned jobs would take; an amount that one of them does not know is left out."""
    planned = [outcome.amounts for outcome in outcomes if outcome.amounts]
    known = [name for name in AMOUNTS if planned and all(name in amounts for amounts in planned)]
    return {name: sum(amounts[name] for amounts in planned) for name in known}


def describe_amounts(amounts: Mapping[str, float]) -> str:
    """`about 1.5 hours, 120 MB read, 3.1 MB of disk`, of those that are known."""
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
"""Amounts of a planned job, and the words for each."""


def escape(text: object) -> str:
    """Text that rich prints as it is."""
    return str(text).replace("[", r"\[")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"job-[0-9][0-9][0-9][0-9]{_rank()}.json"))


def _rank() -> str:
    # Each of several processes that train together makes the whole sweep, and tells of its own jobs.
    rank = os.environ.get("RANK", "0")
    return "" if rank == "0" else f"-rank{rank}"


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
