"""The processes beside the first: they train along and write nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from pcr_exp.config.runners import TrainConfig
from pcr_exp.loading.workers import named_worker_death
from pcr_exp.runs.data import open_data
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.session import open_session, set_up_torch
from pcr_exp.runs.team_state import saved_states, share_of_state
from pcr_exp.storage.bucket_file import new_bucket_path
from pcr_exp.storage.open import is_limited
from pcr_exp.system.interrupts import handled_signals
from pcr_exp.training.checkpoint import load_checkpoint
from pcr_exp.training.distributed.processes import Processes, named_process_death


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the first process tells the others before they begin."""

    folder: Path
    """The run's directory: others cannot know it, since it depends on what lies in it already."""
    finished: bool
    """Whether there is nothing to do."""
    checkpoint: Path | None
    """Where to go on from."""
    bucket: Path | None
    """The state of the storage throttle: processes share one storage."""

    @classmethod
    def of(cls, config: TrainConfig, directory: RunDirectory) -> Assignment:
        """Decide, as the holder of the run's directory."""
        checkpoint = directory.checkpoint_path
        finished = directory.status == "finished"
        return cls(
            folder=directory.path,
            finished=finished,
            checkpoint=checkpoint if checkpoint.exists() else None,
            bucket=new_bucket_path() if is_limited(config.storage) and not finished else None,
        )


def follow(config: TrainConfig, device: torch.device, processes: Processes) -> Assignment:
    """Train along with the first process, unless it finds the run finished; return what it said.

    Raises:
        KeyboardInterrupt, SystemExit: on SIGINT, SIGTERM, after the checkpoint that all take part in.
        RunError: another process has ended.
    """
    with handled_signals() as stop, named_worker_death(), named_process_death():
        assignment = processes.from_first(_nothing)
        if assignment.finished:
            return assignment
        set_up_torch(config, device, processes)
        data = open_data(config, bucket=assignment.bucket)
        with open_session(config, data, device, processes) as session, stop.graceful():
            if assignment.checkpoint is not None:
                saved = saved_states(load_checkpoint(assignment.checkpoint))
                session.load_state_dict(share_of_state(saved, processes.rank, processes.world_size))
            rows = session.rows(
                checkpoint=lambda: _give(processes, session.state_dict()),
                should_stop=lambda: stop.agree(processes.any(stop.requested)),
            )
            with closing(rows) as stream:
                for _ in stream:
                    pass
    return assignment


def _nothing() -> Assignment:
    raise AssertionError("the first process decides")


def _give(processes: Processes, state: dict[str, object]) -> None:
    processes.gather(state)
