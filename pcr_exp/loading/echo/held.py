"""Of a record that a shuffle buffer keeps in use, only the samples that will be used again stay in memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from pcr_exp.loading.echo.repeats import Ints
from pcr_exp.loading.order import EpochOrder
from pcr_exp.records.reader import RecordPrefix


class SomeSamples:
    """A few samples of a record prefix, by their numbers in the record."""

    def __init__(self, prefix: RecordPrefix | SomeSamples, samples: Iterable[int]) -> None:
        self.ids: list[str] = prefix.ids
        self.labels: dict[str, Ints] = prefix.labels
        self.group: int = prefix.group
        self.num_bytes: int = prefix.num_bytes
        self._jpegs = {sample: prefix.encoded(sample) for sample in samples}

    def __len__(self) -> int:
        return len(self._jpegs)

    def encoded(self, i: int) -> bytes:
        """Sample i of the record, as the prefix gave it. Raises KeyError if it is not one of the few."""
        return self._jpegs[i]


Samples = RecordPrefix | SomeSamples


class Trimmer:
    """Lets go of samples that an epoch will not use again.

    A record is copied when half of what is left of it is not needed any more: so at most twice the samples
    that are needed stay in memory, and each is copied about once. Records whose repeats read on stay whole.
    """

    def __init__(self, order: EpochOrder) -> None:
        self._order = order

    def trim(self, opened: dict[int, Samples], position: int) -> None:
        """Shrink what is `opened`, by read, to what the positions from `position` on need.

        Without repeats, records are let go of in time by themselves, and there is nothing to do.
        """
        if not self._order.repeats.any() or self._order.levels.any():
            return
        for read, samples in opened.items():
            left = self._samples_left(read, position)
            if 2 * len(left) <= len(samples):
                opened[read] = SomeSamples(samples, left.tolist())

    def _samples_left(self, read: int, position: int) -> Ints:
        by_read, starts = self._positions
        positions = by_read[starts[read] : starts[read + 1]]
        return np.unique(self._order.samples[positions[np.searchsorted(positions, position) :]])

    @cached_property
    def _positions(self) -> tuple[Ints, Ints]:
        """The positions by the read that they use, and where each read's begin."""
        reads = self._order.reads
        by_read = np.argsort(reads, kind="stable")
        return by_read, np.searchsorted(reads[by_read], np.arange(len(self._order.records) + 1))
