"""A user's training loop: what its scan policy is told, and where its loader stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pcr_exp.errors import LoaderError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import ScanPolicy, Update


class Observer:
    """Time between batches counts as training, time blocked on the next one as waiting."""

    def __init__(self, policy: ScanPolicy, now: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._now = now
        self._train_s = self._wait_s = 0.0
        self._given_s: float | None = None
        self._batch: Batch | None = None
        self._ends_epoch = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the wait for a batch."""
        self.rest()
        began_s = self._now()
        yield
        self._given_s = self._now()
        self._wait_s += self._given_s - began_s

    def rest(self) -> None:
        """Training pauses: no time counts until the next batch is waited for."""
        if self._given_s is not None:
            self._train_s += self._now() - self._given_s
        self._given_s = None

    def give(self, batch: Batch, *, ends_epoch: bool) -> None:
        """A batch goes to training."""
        self._batch, self._ends_epoch = batch, ends_epoch

    def observe(self, loss: float) -> None:
        """Training has made its update. Raises LoaderError if there was no batch since it was told last."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise LoaderError(
                "observe() tells of the update on the last batch, and none came since it was called: call "
                "it once for each batch, after the update."
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
        position = {"epoch": self.epoch, "update": update, "part": part, "parts_per_update": self._num_parts}
        return {"version": VERSION, **position, **self._identity}

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
