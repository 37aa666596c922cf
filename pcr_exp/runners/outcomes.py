"""How the jobs of a sweep ended: a small file per job, written by the job itself, wherever it runs.

A launcher may run jobs in other processes or on other machines, so nothing that the process which began the
sweep has in memory can tell. The files lie in the sweep's folder, `hydra.sweep.dir`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from pcr_exp.system.atomic import make_folder, write_atomic

BEGUN, FAILED, DIED, INTERRUPTED, NOT_BEGUN = "begun", "failed", "died", "interrupted", "not begun"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job ended; `status` is the task's word, such as `finished`, or one of the above."""

    job: str
    status: str
    detail: str = ""
    amounts: dict[str, float] = field(default_factory=dict)
    """What it would take, of a job that is only planned: by name and unit, such as `read_bytes`."""

    @property
    def failed(self) -> bool:
        """Whether the sweep has failed because of this job."""
        return self.status in (FAILED, DIED)


class SweepFolder(Callback):
    """Tells the process that begins a sweep where its jobs' outcomes will lie.

    `fail_fast` is read by each job: after one has failed, those that have not begun do not begin.
    """

    begun: ClassVar[Path | None] = None
    """The folder of the sweep that this process began."""

    def __init__(self, fail_fast: bool = False) -> None:
        self.fail_fast = fail_fast

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = sweep_folder(config.hydra)
        make_folder(folder)
        for file in _files(folder):  # of an earlier sweep, where the folder was chosen by hand
            file.unlink()
        SweepFolder.begun = folder


def sweep_folder(hydra: Any) -> Path:
    """The folder of a sweep's outcomes, for the process that began it and for each of its jobs."""
    return Path(hydra.runtime.cwd) / hydra.sweep.dir


def is_stopped(folder: Path) -> bool:
    """In a job: whether it shall not begin, because another one has failed and the sweep is to fail fast."""
    sweep = HydraConfig.get().callbacks.get("sweep")
    return sweep is not None and bool(sweep.fail_fast) and any(o.failed for o in read_outcomes(folder))


def write_outcome(folder: Path, number: int, outcome: Outcome) -> None:
    """Write how job `number` stands, in place of what was there."""
    make_folder(folder)
    write_atomic(folder / f"job-{number:04d}{_rank()}.json", [json.dumps(asdict(outcome)).encode()])


def read_outcomes(folder: Path) -> list[Outcome]:
    """What the jobs have written so far, by their numbers."""
    return [Outcome(**json.loads(file.read_text())) for file in _files(folder)]


def read_ended(folder: Path, *, interrupted: bool) -> list[Outcome]:
    """As `read_outcomes`, when no job runs any more: one that began and did not end was stopped or died."""
    status, detail = (INTERRUPTED, "") if interrupted else (DIED, "its process ended without a word")
    return [
        replace(outcome, status=status, detail=detail) if outcome.status == BEGUN else outcome
        for outcome in read_outcomes(folder)
    ]


def print_outcomes(outcomes: list[Outcome]) -> None:
    """A sweep's jobs in a table, the failed ones last."""
    table = Table(
        title=f"{len(outcomes)} jobs, {sum(o.failed for o in outcomes)} failed", title_justify="left"
    )
    table.add_column("job", overflow="fold")
    table.add_column("status")
    table.add_column("detail", overflow="fold")
    for outcome in sorted(outcomes, key=lambda o: o.failed):
        style = "red" if outcome.failed else ""
        table.add_row(escape(outcome.job), outcome.status, escape(outcome.detail), style=style)
    Console(stderr=True).print(table)
    if totals := total_amounts(outcomes):
        print(f"in all: {amounts_in_words(totals)}")


def total_amounts(outcomes: list[Outcome]) -> dict[str, float]:
    """The sums of what planned jobs would take; an amount that one of them does not know is left out."""
    planned = [outcome.amounts for outcome in outcomes if outcome.amounts]
    known = [name for name in AMOUNTS if planned and all(name in amounts for amounts in planned)]
    return {name: sum(amounts[name] for amounts in planned) for name in known}


def amounts_in_words(amounts: Mapping[str, float]) -> str:
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
"""What a planned job takes, and how it is said."""


def escape(text: object) -> str:
    """Text that rich prints as it is."""
    return str(text).replace("[", r"\[")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"job-[0-9][0-9][0-9][0-9]{_rank()}.json"))


def _rank() -> str:
    # Each of several processes that train together makes the whole sweep, and tells of its own jobs.
    rank = os.environ.get("RANK", "0")
    return "" if rank == "0" else f"-rank{rank}"
