"""Processes other than the first: they train, write no files, and resume from the state that all saved.

A run can resume with more or fewer processes than saved it. All then take model, optimizer, clocks and scan
policy state from the first. Counters of each process's own share (images, bytes, messages) are redistributed
so that their sums over all processes stay correct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.runs.data import open_data
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.session import COUNTED, open_session, set_up_torch
from pcr_exp.storage.bucket import new_bucket_path
from pcr_exp.storage.open import is_limited
from pcr_exp.system.process import handled_signals
from pcr_exp.training.columns import COLUMNS
from pcr_exp.training.distributed.processes import Processes, named_process_death
from pcr_exp.training.weights import load_checkpoint

State = dict[str, Any]


_COUNTED = {column.name for column in COLUMNS if column.grows and column.combine == "sum"}
_MEANS = ("epoch_loss", "interval_loss")


@dataclass(frozen=True, slots=True)
class Assignment:
    """The first process's message to the others before they begin."""

    folder: Path
    """The run's directory. Other processes cannot derive it, since it depends on existing runs."""
    finished: bool
    """Whether the run is finished already."""
    checkpoint: Path | None
    """Checkpoint to resume from; None if there is none."""
    bucket: Path | None
    """State file of the storage throttle, which all processes share; None without a throttle."""

    @classmethod
    def of(cls, config: TrainConfig, directory: RunDirectory) -> Assignment:
        """Return the assignment, in the process that holds the run's directory."""
        checkpoint = directory.checkpoint_path
        finished = directory.status == "finished"
        return cls(
            folder=directory.path,
            finished=finished,
            checkpoint=checkpoint if checkpoint.exists() else None,
            bucket=new_bucket_path() if is_limited(config.storage) and not finished else None,
        )


def follow(config: TrainConfig, device: torch.device, processes: Processes) -> Assignment:
    """Train together with the first process, unless the run is finished; return its assignment.

    Raises:
        KeyboardInterrupt, SystemExit: on SIGINT, SIGTERM, after the checkpoint that all take part in.
        RunError: another process has ended.
    """
    with handled_signals() as stop, named_process_death(processes):
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


def share_of_state(states: Sequence[State], rank: int, world_size: int) -> State:
    """Return the state with which process `rank` of `world_size` resumes.

    With an unchanged number of processes, each gets its own state back. Otherwise each gets the first one's,
    with the counters of the processes that it replaces: old process r continues in r modulo `world_size`.

    Args:
        states: Saved states (`Session.state_dict`) by rank.
        rank: Rank of the process that resumes.
        world_size: Number of processes that resume.
    """
    if len(states) == world_size:
        return states[rank]
    own = states[rank::world_size]
    first = states[0]
    return {
        **first,
        "progress": _progress(
            [state["progress"] for state in states], [state["progress"] for state in own], world_size
        ),
        **{name: sum(state.get(name, 0) for state in own) for name in COUNTED},
        "exchange": _exchange(states, own),
    }


def _progress(states: Sequence[State], own: Sequence[State], world_size: int) -> State:
    first = states[0]
    progress = {**first, **{key: sum(each[key] for each in own) for key in _COUNTED & first.keys()}}
    for key in _MEANS:
        # Every process has the same mean. Its weight (images) is split equally between them.
        progress[key] = {part: sum(each[key][part] for each in states) / world_size for part in first[key]}
    if first.get("by_source"):
        sums = {name: sum(each["by_source"][name] for each in own) for name in first["by_source"]}
        progress["by_source"] = sums
    if first["interval_start"]:
        counted = {
            key: sum(each["interval_start"].get(key, 0) for each in own)
            for key in _COUNTED & first["interval_start"].keys()
        }
        progress["interval_start"] = {**first["interval_start"], **counted}
    return progress


def _exchange(states: Sequence[State], own: Sequence[State]) -> State:
    """Redistribute the state of plain averaging, which holds only counts; a single process has none."""
    wires = [state["exchange"]["wire"] for state in states if "wire" in state["exchange"]]
    if not wires:
        return {}
    own_wires = [state["exchange"]["wire"] for state in own if "wire" in state["exchange"]]
    traffic = {key: sum(wire["traffic"][key] for wire in own_wires) for key in wires[0]["traffic"]}
    return {"averaging": {}, "wire": {"traffic": traffic, "waited_s": wires[0]["waited_s"]}}


def saved_states(checkpoint: Mapping[str, Any]) -> list[State]:
    """Return the states of all processes, by rank, from the checkpoint of the first."""
    own = {key: value for key, value in checkpoint.items() if key != "others"}
    return [own, *checkpoint["others"]]
