"""Where a loader is in its epochs, as a state that another process can go on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pcr_exp.errors import LoaderError

VERSION = 1


class Position:
    """The next batch: an epoch from 0, and the batch's number among those that this process gives to it."""

    def __init__(self, identity: Mapping[str, Any], num_parts: int) -> None:
        """`identity`: what must be equal where a state goes on; `num_parts`: batches to each update."""
        self._identity = dict(identity)
        self._num_parts = num_parts
        self.epoch = self.batch = 0
        self._is_begun = False
        """Whether an iteration of `epoch` has begun."""

    def begin(self) -> None:
        """An iteration begins: of the next epoch, if one of this epoch was begun and left."""
        if self._is_begun:
            self.epoch, self.batch = self.epoch + 1, 0
        self._is_begun = True

    def end(self) -> None:
        """The epoch's last batch was followed by a call for another."""
        self.epoch, self.batch, self._is_begun = self.epoch + 1, 0, False

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch; one that is to be continued stays so."""
        if self._is_begun or epoch != self.epoch:
            self.epoch, self.batch, self._is_begun = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        update, part = divmod(self.batch, self._num_parts)
        place = {"epoch": self.epoch, "update": update, "part": part, "parts_per_update": self._num_parts}
        return {"version": VERSION, **place, **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there.

        Raises:
            LoaderError: it is of other images or settings, or was saved between the batches of an update by
                another number of processes.
        """
        wanted = {"version": VERSION, **self._identity}
        if state.get("part") != 0:
            wanted["parts_per_update"] = self._num_parts
        for name, own in wanted.items():
            if state.get(name) != own:
                raise LoaderError(
                    f"the state cannot be continued here: {name} was {state.get(name)!r} and is {own!r}. "
                    "Open the dataset and its loader with what they had."
                )
        self.epoch, self._is_begun = state["epoch"], False
        self.batch = state["update"] * self._num_parts + state["part"]
