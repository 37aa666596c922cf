"""What every runner shares: Hydra around a task, errors for people, and a table at the end of a sweep."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from pcr_exp.config.compose import load, register
from pcr_exp.errors import PcrExpError

CONFIGS = Path(__file__).parents[1] / "configs"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job ended."""

    job: str
    status: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.status == "failed"


def launch(task: Callable[[T], str], config_name: str, schema: type[T]) -> None:
    """Run `task` on the configuration that the command line composes, once or for every job of a sweep.

    `task` returns one word for the sweep's table, such as "finished" or "skipped". A job that fails does
    not stop a sweep, unless several processes make it: the others are in the middle of the job that failed
    here, and would wait for this one forever. Exits with status 1 if any job failed.
    """
    register()
    outcomes: list[Outcome] = []

    @hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)
    def main(config: DictConfig) -> None:
        outcomes.append(_run(task, config, schema))
        if outcomes[-1].failed and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise SystemExit(1)  # torchrun then ends the others

    try:
        main()
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; the same command continues", style="yellow")
        sys.exit(130)
    if len(outcomes) > 1:
        print_outcomes(outcomes)
    if any(outcome.failed for outcome in outcomes):
        sys.exit(1)


def _run(task: Callable[[T], str], config: DictConfig, schema: type[T]) -> Outcome:
    job = _job_name()
    try:
        return Outcome(job, task(load(config, schema)))
    except PcrExpError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            traceback.print_exc()
        Console(stderr=True).print(f"[bold red]error:[/] {_escape(error)}", soft_wrap=True)
        return Outcome(job, "failed", str(error))
    except Exception as error:
        # Not ours: the traceback is what a bug report needs.
        traceback.print_exc()
        return Outcome(job, "failed", f"{type(error).__name__}: {error}")


def _job_name() -> str:
    state = HydraConfig.get()
    if state.mode == RunMode.MULTIRUN:
        return " ".join(
            override for override in state.overrides.task if not override.startswith("experiment=")
        )
    return state.job.name


def print_outcomes(outcomes: list[Outcome]) -> None:
    """A sweep's jobs in a table, the failed ones last."""
    table = Table(
        title=f"{len(outcomes)} jobs, {sum(o.failed for o in outcomes)} failed", title_justify="left"
    )
    table.add_column("job")
    table.add_column("status")
    table.add_column("detail", overflow="fold")
    for outcome in sorted(outcomes, key=lambda o: o.failed):
        style = "red" if outcome.failed else ""
        table.add_row(_escape(outcome.job), outcome.status, _escape(outcome.detail), style=style)
    Console(stderr=True).print(table)


def _escape(text: object) -> str:
    return str(text).replace("[", r"\[")
