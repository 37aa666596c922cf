"""What each process of a run goes on from, where a run that was saved by some goes on with more or fewer.

Model, optimizer, clocks and what a scan policy has found out are the same in all, or one's own for all; what
each counted of its own share (images, bytes, messages) is handed on so that the sums over all stay right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pcr_exp.training.columns import COLUMNS

State = dict[str, Any]

_COUNTED = {column.name for column in COLUMNS if column.grows and column.combine == "sum"}
_MEANS = ("epoch_loss", "interval_loss")


def share_of_state(states: Sequence[State], rank: int, world_size: int) -> State:
    """The state that process `rank` of `world_size` begins with.

    As many as there were get their own back. Otherwise each gets the first's, with the counters of those that
    it takes the place of: process r of those before goes on in r modulo `world_size`.

    Args:
        states: By rank, what the processes saved (`Session.state_dict`).
        rank: Of the process that goes on.
        world_size: How many go on.
    """
    if len(states) == world_size:
        return states[rank]
    own = states[rank::world_size]
    first = states[0]
    return {
        **first,
        "progress": _progress(first["progress"], [state["progress"] for state in own]),
        "bytes_read": sum(state["bytes_read"] for state in own),
        "exchange": _exchange(states, own),
    }


def _progress(first: State, own: Sequence[State]) -> State:
    progress = {**first, **{key: sum(each[key] for each in own) for key in _COUNTED & first.keys()}}
    for key in _MEANS:
        # Every process has the same mean; the weights are images.
        progress[key] = {part: sum(each[key][part] for each in own) for part in first[key]}
    if first["interval_start"]:
        counted = {
            key: sum(each["interval_start"].get(key, 0) for each in own)
            for key in _COUNTED & first["interval_start"].keys()
        }
        progress["interval_start"] = {**first["interval_start"], **counted}
    return progress


def _exchange(states: Sequence[State], own: Sequence[State]) -> State:
    """Of plain averaging, which keeps nothing but counts; one process alone has none."""
    wires = [state["exchange"]["wire"] for state in states if "wire" in state["exchange"]]
    if not wires:
        return {}
    own_wires = [state["exchange"]["wire"] for state in own if "wire" in state["exchange"]]
    traffic = {key: sum(wire["traffic"][key] for wire in own_wires) for key in wires[0]["traffic"]}
    return {"averaging": {}, "wire": {"traffic": traffic, "waited_s": wires[0]["waited_s"]}}


def saved_states(checkpoint: Mapping[str, Any]) -> list[State]:
    """The states of all processes, by rank, from what the first one saved."""
    own = {key: value for key, value in checkpoint.items() if key != "others"}
    return [own, *checkpoint["others"]]
