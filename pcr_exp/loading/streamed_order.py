"""The order of an epoch that is laid out as it is used: memory holds a few windows of it, however long it is.

It is gone through twice: once at its beginning, to learn when each record is wanted first and last, and then
along with the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pcr_exp.loading.lanes import Ints, Places, laid_end_to_end
from pcr_exp.loading.order import in_turns

_ROUGHLY = 2**14
"""Positions that several slots lay out at a time."""
_NONE = Places(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
Stretches = Callable[[], Iterator[Places]]
"""Gives what a slot uses in an epoch, from its beginning on."""


class StreamedOrder:
    """An `Order` in which every sample is used once: as `epoch_order` of the same slots makes it whole.

    `uses` is for one thread.
    """

    def __init__(self, slots: Sequence[Stretches], num_records: int, batch_size: int) -> None:
        """`slots` use equally many samples, of records 0 to `num_records` - 1."""
        self._slots = slots
        self._batch_size = batch_size
        first_use, last_use = (np.full(num_records, -1, dtype=np.int64) for _ in range(2))
        self._num_positions = 0
        for places in self._stretches():
            end = self._num_positions + len(places.records)
            positions = np.arange(self._num_positions, end)
            # Of repeated indices, numpy keeps the last one assigned.
            new = first_use[places.records] < 0
            first_use[places.records[new][::-1]] = positions[new][::-1]
            last_use[places.records] = positions
            self._num_positions = end
        used = np.flatnonzero(last_use >= 0)
        self.records: Ints = used[np.argsort(first_use[used])]
        self.first_use: Ints = first_use[self.records]
        self.last_use: Ints = last_use[self.records]
        self._number = np.full(num_records, -1, dtype=np.int64)
        self._number[self.records] = np.arange(len(self.records))
        self._to_come = self._stretches()
        self._held, self._begin = _NONE, 0

    @property
    def num_batches(self) -> int:
        """As `Order` says."""
        return -(-self._per_slot // self._batch_size) * len(self._slots)

    def batch_start(self, batch: int) -> int:
        """As `Order` says."""
        turn, slot = divmod(batch, len(self._slots))
        before = min(turn * self._batch_size, self._per_slot)
        return before * len(self._slots) + slot * min(self._batch_size, self._per_slot - before)

    def uses(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """As `Order` says."""
        if first < self._begin:
            self._rewind()
        while self._begin + len(self._held.records) < end:
            used = min(first - self._begin, len(self._held.records))
            rest = Places(*(column[used:] for column in self._held))
            self._held = laid_end_to_end([rest, next(self._to_come)])
            self._begin += used
        places = Places(*(column[first - self._begin : end - self._begin] for column in self._held))
        return self._number[places.records], places.samples, np.zeros(end - first, dtype=np.int64)

    @property
    def _per_slot(self) -> int:
        return self._num_positions // len(self._slots)

    def _rewind(self) -> None:
        self._to_come = self._stretches()
        self._held, self._begin = _NONE, 0

    def _stretches(self) -> Iterator[Places]:
        """All positions in order."""
        if len(self._slots) == 1:
            return self._slots[0]()
        count = self._batch_size * max(1, _ROUGHLY // (self._batch_size * len(self._slots)))
        return self._by_turns([_in_stretches_of(count, slot()) for slot in self._slots])

    def _by_turns(self, slots: Sequence[Iterator[Places]]) -> Iterator[Places]:
        for stretches in zip(*slots, strict=True):
            turns, _ = in_turns(len(stretches[0].records), len(slots), self._batch_size)
            together = laid_end_to_end(stretches)
            yield Places(together.records[turns], together.samples[turns])


def _in_stretches_of(count: int, stretches: Iterator[Places]) -> Iterator[Places]:
    """The same samples in stretches of `count`; the last one may be shorter."""
    held: list[Places] = []
    num_held = 0
    for stretch in stretches:
        held.append(stretch)
        num_held += len(stretch.records)
        if num_held >= count:
            together = laid_end_to_end(held)
            whole = num_held // count * count
            for start in range(0, whole, count):
                yield Places(*(column[start : start + count] for column in together))
            held, num_held = [Places(*(column[whole:] for column in together))], num_held - whole
    if num_held:
        yield laid_end_to_end(held)
