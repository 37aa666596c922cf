"""What a scan policy is told of a training loop that is not ours: its losses, and how long it waited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pcr_exp.errors import LoaderError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import ScanPolicy, Update


class Observer:
    """Counts what passes between batches as training, and what passes until one comes as waiting."""

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
        began_s = self._now()
        if self._given_s is not None:
            self._train_s += began_s - self._given_s
        self._given_s = None
        yield
        self._given_s = self._now()
        self._wait_s += self._given_s - began_s

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
