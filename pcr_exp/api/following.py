"""Follow a user's training loop: report its updates to the scan policy, and track the loader's position."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pcr_exp.errors import LoaderError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import ScanPolicy, Update


class Observer:
    """Reports updates. Time between batches counts as training, time blocked on the next one as data wait."""

    def __init__(self, policy: ScanPolicy, now: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._now = now
        self._train_s = self._wait_s = 0.0
        self._given_s: float | None = None
        self._batch: Batch | None = None
        self._ends_epoch = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time within as waiting for a batch."""
        self.rest()
        began_s = self._now()
        yield
        self._given_s = self._now()
        self._wait_s += self._given_s - began_s

    def rest(self) -> None:
        """Pause training: no time counts until the wait for the next batch begins."""
        if self._given_s is not None:
            self._train_s += self._now() - self._given_s
        self._given_s = None

    def give(self, batch: Batch, *, ends_epoch: bool) -> None:
        """Note the batch that training receives."""
        self._batch, self._ends_epoch = batch, ends_epoch

    def observe(self, loss: float) -> None:
        """Report the update on the last batch. Raises LoaderError if there is no unreported batch."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise LoaderError(
                "observe() reports the update on the last batch, but no batch has come since the previous "
                "call. Call it once for each batch, after the update."
            )
        so_far_s = 0.0 if self._given_s is None else self._now() - self._given_s
        self._policy.observe(
            Update(
                epoch=batch.epoch,
                ends_epoch=self._ends_epoch,
                num_images=len(batch.labels),
                num_fresh=batch.num_fresh,
                group=batch.group,
                loss=loss,
                train_s=self._train_s + so_far_s,
                wait_s=self._wait_s,
            )
        )
        self._policy.take_decision()  # nobody logs it here, but `balanced` learns its floor's group from it


VERSION = 1


class Position:
    """Position of the next batch: its epoch, from 0, and its number among this process's batches in it."""

    def __init__(self, identity: Mapping[str, Any], num_parts: int) -> None:
        """`identity`: values that must match to resume a state; `num_parts`: batches per update."""
        self._identity = dict(identity)
        self._num_parts = num_parts
        self.epoch = self.batch = 0
        self._is_begun = False
        """Whether an iteration of `epoch` has begun."""

    def begin(self) -> None:
        """Begin an iteration; if one of this epoch was begun and abandoned, move on to the next epoch."""
        if self._is_begun:
            self.epoch, self.batch = self.epoch + 1, 0
        self._is_begun = True

    def end(self) -> None:
        """End the epoch, when a batch is requested after its last one."""
        self.epoch, self.batch, self._is_begun = self.epoch + 1, 0, False

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration at this epoch; if it was restored midway, it is continued."""
        if self._is_begun or epoch != self.epoch:
            self.epoch, self.batch, self._is_begun = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return the position and the identity as plain values."""
        update, part = divmod(self.batch, self._num_parts)
        position = {"epoch": self.epoch, "update": update, "part": part, "parts_per_update": self._num_parts}
        return {"version": VERSION, **position, **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state.

        Raises:
            LoaderError: it belongs to other images or settings, or was saved between the batches of an update
                by a different number of processes.
        """
        wanted = {"version": VERSION, **self._identity}
        if state.get("part") != 0:
            wanted["parts_per_update"] = self._num_parts
        for name, own in wanted.items():
            if state.get(name) != own:
                raise LoaderError(
                    f"the state cannot be loaded here: {name} was {state.get(name)!r} when it was saved, and "
                    f"is {own!r} now. Open the dataset and its loader with the same settings as then."
                )
        self.epoch, self._is_begun = state["epoch"], False
        self.batch = state["update"] * self._num_parts + state["part"]
