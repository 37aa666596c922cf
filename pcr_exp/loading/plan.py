"""The reads of a stream and the samples of each batch, planned before anything is read. No side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pcr_exp.loading.lanes import Ints
from pcr_exp.loading.order import EpochRange, Order, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Plan of a batch: consecutive positions of an epoch's order, from `first` on."""

    epoch: int
    order: Order
    index: int
    """Number of the update in its epoch."""
    num_updates: int
    """Updates of the epoch."""
    slot: int
    part: int
    """Index among the micro-batches that this process contributes to the update."""
    num_parts: int
    """Number of micro-batches that this process contributes to the update."""
    first: int
    opens: list[tuple[int, int]]
    """(position, read) of each read that this batch needs first. The first batch of a stream also opens reads
    of earlier positions that are still in use."""
    takes: list[tuple[int, int, int]]
    """(position, read, sample number within the record) of each image."""
    num_repeats: int
    """Images whose sample the epoch has used before."""


class Plan:
    """The reads and batches of an epoch range, for the micro-batch indices of this process."""

    def __init__(
        self,
        span: EpochRange,
        slots: Sequence[int],
        order: Callable[[int], Order],
        choose: Callable[[int, int], int | None],
    ) -> None:
        """`slots` take turns in the batches of an order; together they form this process's part of an update.

        `order(epoch)` is called twice per epoch: by `requests`, and later by `batches`.
        `choose(epoch, record)` returns the scan group, or None if it is not decided yet.
        """
        self._span = span
        self._slots = slots
        self._order = order
        self._choose = choose

    def requests(self) -> Iterator[Request | None]:
        """Yield every read in order of first use; None while the group of the next one is undecided."""
        for epoch, first_batch in self._span.epochs():
            order = self._order(epoch)
            needed = self._needed(order, self._numbers(order, first_batch))
            for request in order.requests(needed, partial(self._choose, epoch)):
                yield None if request is None else request._replace(epoch=epoch)

    def batches(self) -> Iterator[BatchPlan]:
        """Yield every batch in order."""
        for epoch, first_batch in self._span.epochs():
            order = self._order(epoch)
            numbers = self._numbers(order, first_batch)
            needed = self._needed(order, numbers)
            first_uses = order.first_use[needed]
            num_parts, num_opened = len(self._slots), 0
            for number in numbers:
                first, end = order.batch_start(number), order.batch_start(number + 1)
                reads, samples, repeats = (column.tolist() for column in order.uses(first, end))
                opened, num_opened = num_opened, int(np.searchsorted(first_uses, end))
                new = slice(opened, num_opened)
                index, part = divmod(number, num_parts)
                yield BatchPlan(
                    epoch=epoch,
                    order=order,
                    index=index,
                    num_updates=order.num_batches // num_parts,
                    slot=self._slots[part],
                    part=part,
                    num_parts=num_parts,
                    first=first,
                    opens=list(zip(first_uses[new].tolist(), needed[new].tolist(), strict=True)),
                    takes=list(zip(range(first, end), reads, samples, strict=True)),
                    num_repeats=len(repeats) - repeats.count(0),
                )

    def _numbers(self, order: Order, first_batch: int) -> range:
        """Return the wanted batches of `order`, from update `first_batch` on."""
        num_parts, end_batch = len(self._slots), self._span.end_batch
        end = order.num_batches if end_batch is None else min(order.num_batches, end_batch * num_parts)
        return range(min(first_batch * num_parts, end), end)

    def _needed(self, order: Order, numbers: range) -> Ints:
        """Return the reads that serve any of these batches."""
        if not numbers:
            return np.empty(0, dtype=np.int64)
        first, end = order.batch_start(numbers.start), order.batch_start(numbers.stop)
        return np.flatnonzero((order.last_use >= first) & (order.first_use < end))
