"""The order of an epoch for one process: its records, and when each sample is used. Pure functions.

A global batch consists of micro-batches, and a process owns some of their indices (`RankShare`). Each index
has its own order of samples (`lanes`), cut into batches. The process yields the first batch of each of its
indices, then the second of each, and so on.

The order is traversed twice: once at the start, to find the first and last use of each record, and then along
with the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from pcr_exp.config.check import require
from pcr_exp.config.loader import num_slots
from pcr_exp.loading.lanes import Ints, SampleIndices, laid_end_to_end


@dataclass(frozen=True, slots=True)
class RankShare:
    """A process's micro-batches of a global batch. Indices count over all processes."""

    rank: int = 0
    world_size: int = 1
    num_slots: int = 1
    """Micro-batches of all processes together."""

    @property
    def slots(self) -> range:
        """The micro-batch indices of this process."""
        per_process = self.num_slots // self.world_size
        return range(self.rank * per_process, (self.rank + 1) * per_process)

    def samples_per_slot(self, num_samples: int) -> int:
        """Return the number of samples that each micro-batch index uses in an epoch."""
        return -(-num_samples // self.num_slots)


def open_share(rank: int, world_size: int, *, batch_size: int, global_batch_size: int | None) -> RankShare:
    """Return the share of a process.

    Args:
        batch_size: Images per micro-batch.
        global_batch_size: Images of all micro-batches together (None: one micro-batch per process).

    Raises:
        SettingError: there is no such rank, or the global batch cannot be divided like this.
    """
    require(world_size >= 1, "world_size", world_size, "at least 1")
    wanted = f"a rank of world_size={world_size}, 0..{world_size - 1}"
    require(0 <= rank < world_size, "rank", rank, wanted)
    return RankShare(rank, world_size, num_slots(batch_size, global_batch_size, world_size))


@dataclass(frozen=True, slots=True)
class EpochRange:
    """From update `first_batch` of epoch `first_epoch` to the end of epoch `num_epochs` - 1."""

    first_epoch: int
    first_batch: int
    num_epochs: int
    end_batch: int | None = None
    """Every epoch ends before this update (None: no limit)."""

    def epochs(self) -> Iterator[tuple[int, int]]:
        """Yield (epoch, first update) for every epoch."""
        for epoch in range(self.first_epoch, self.num_epochs):
            yield epoch, self.first_batch if epoch == self.first_epoch else 0


@dataclass(frozen=True, slots=True)
class SampleSequence:
    """The samples of one micro-batch index in an epoch, in order of use. All arrays are int64 [n]."""

    records: Ints
    samples: Ints
    """Number within the record."""
    repeats: Ints
    """Earlier uses of the sample in this epoch."""

    @classmethod
    def once(cls, indices: SampleIndices) -> SampleSequence:
        """Return a sequence in which every sample of `indices` is used for the first time."""
        return cls(indices.records, indices.samples, np.zeros(len(indices.records), dtype=np.int64))


class Request(NamedTuple):
    """A read of the groups `after` + 1 to `group` of a record."""

    record: int
    group: int
    after: int = 0
    epoch: int = 0


Choose = Callable[[int], int | None]
"""Returns the scan group at which to read a record, or None if that is not decided yet."""


@dataclass(frozen=True, slots=True, eq=False)
class EpochOrder:
    """The whole order of one process in an epoch: R reads, n positions in B batches. Reads may be continued.

    Reads are numbered in order of first use.
    """

    records: Ints
    """[R] record number of each read."""
    continuations: Ints
    """[R] 0 for a prefix of the record; k > 0 for a continuation to the scan group of k-th repeats."""
    groups: Ints
    """[R] that scan group; 0 for a prefix."""
    bases: Ints
    """[R] the read that a continuation extends; for a prefix, the read itself."""
    batches: Ints
    """[B + 1] batch b covers the positions batches[b] to batches[b + 1] - 1; the last entry is n."""
    reads: Ints
    """[n] the read that supplies the sample at each position."""
    samples: Ints
    """[n] that sample's number within its record."""
    repeats: Ints
    """[n] earlier uses of that sample in this epoch."""
    first_use: Ints
    """[R] the first position that a read serves, ascending."""
    last_use: Ints
    """[R] the last position that a read serves, directly or through its continuations."""

    @property
    def num_batches(self) -> int:
        """B, over all micro-batch indices of the process."""
        return len(self.batches) - 1

    def batch_start(self, batch: int) -> int:
        """Return the first position of a batch; n for batch B."""
        return int(self.batches[batch])

    def uses(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return reads, samples and repeats of positions `first` to `end` - 1; fastest in ascending order."""
        return self.reads[first:end], self.samples[first:end], self.repeats[first:end]

    def requests(self, reads: Ints, choose: Choose) -> Iterator[Request | None]:
        """Yield a prefix or continuation for each of `reads`; None while `choose` returns None."""
        groups: dict[int, int] = {}
        for read in reads.tolist():
            record, base = int(self.records[read]), int(self.bases[read])
            if base == read:
                while (group := choose(record)) is None:
                    yield None
                groups[read] = group
                yield Request(record, group)
            else:
                # The policy may have chosen a higher group for this record than its repeats request.
                groups[read] = max(groups[base], int(self.groups[read]))
                yield Request(record, groups[read], groups[base])


def epoch_order(
    slots: Sequence[SampleSequence], batch_size: int, repeat_groups: Sequence[int] = ()
) -> EpochOrder:
    """Return the order in which a process reads.

    Args:
        slots: Samples of each of its micro-batch indices, all of equal length.
        batch_size: Positions per batch; the last batch of an index may be shorter.
        repeat_groups: K scan groups. The k-th repeat of a sample, up to the K-th, needs a continuation of its
            record's read up to the k-th of these groups. There is one continuation per record and k, needed
            first by the first k-th repeat of any of its samples.
    """
    num_continuations = len(repeat_groups)
    count = len(slots[0].records)
    turns, sizes = in_turns(count, len(slots), batch_size)

    def taken(column: str) -> Ints:
        return np.concatenate([getattr(slot, column) for slot in slots])[turns]

    repeats = taken("repeats")
    # A read is a record and a continuation number: a process reads no record twice in an epoch.
    keys = taken("records") * (num_continuations + 1) + np.minimum(repeats, num_continuations)
    num_keys = int(keys.max()) + 1
    first_use = _last_positions(keys[::-1], num_keys, len(keys) - 1, -1)
    last_use = _last_positions(keys, num_keys, 0, 1)
    used = np.flatnonzero(last_use >= 0)
    used = used[np.argsort(first_use[used])]
    number = np.full(num_keys, -1, dtype=np.int64)
    number[used] = np.arange(len(used))
    records, continuations = np.divmod(used, num_continuations + 1)
    for continuation in range(num_continuations, 0, -1):
        of_this = used[continuations == continuation]
        last_use[of_this - 1] = np.maximum(last_use[of_this - 1], last_use[of_this])
    return EpochOrder(
        records=records,
        continuations=continuations,
        groups=np.array([0, *repeat_groups], dtype=np.int64)[continuations],
        bases=number[used - (continuations > 0)],
        batches=np.append(0, np.cumsum(sizes)),
        reads=number[keys],
        samples=taken("samples"),
        repeats=repeats,
        first_use=first_use[used],
        last_use=last_use[used],
    )


def in_turns(count: int, num_slots: int, batch_size: int) -> tuple[Ints, Ints]:
    """Interleave sequences of `count` uses by batch; return positions in their concatenation, and sizes."""
    batch = np.arange(count) // batch_size
    # Stable: positions of a batch stay together and in order; equal batch numbers keep the sequences' order.
    turns = np.argsort(np.tile(batch, num_slots), kind="stable") if num_slots > 1 else np.arange(count)
    return turns, np.repeat(np.bincount(batch), num_slots)


def _last_positions(keys: Ints, num_keys: int, start: int, step: int) -> Ints:
    """Return the last position of each key, or -1; positions count from `start` in steps of `step`."""
    found = np.full(num_keys, -1, dtype=np.int64)
    # For repeated indices, numpy keeps the last value assigned.
    found[keys] = start + step * np.arange(len(keys))
    return found


_ROUGHLY = 2**14
"""Approximate number of positions laid out at a time for several micro-batch indices."""

_NONE = SampleIndices(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

SlotSamples = Callable[[], Iterator[SampleIndices]]
"""Returns an iterator over the samples of a micro-batch index in an epoch, from the start."""


class StreamedOrder:
    """An order that uses every sample once, laid out as it is used; equals `epoch_order` of the same samples.

    `uses` may only be called from one thread.
    """

    def __init__(
        self, slots: Sequence[SlotSamples], num_records: int, batch_size: int, *, stored: Ints | None = None
    ) -> None:
        """`slots` yield equally many samples, of records 0 to `num_records` - 1.

        `stored` [`num_records`] maps these record numbers to the records to read (None: no change).
        """
        self._slots = slots
        self._batch_size = batch_size
        first_use, last_use = (np.full(num_records, -1, dtype=np.int64) for _ in range(2))
        self._num_positions = 0
        for indices in self._chunks():
            end = self._num_positions + len(indices.records)
            positions = np.arange(self._num_positions, end)
            # For repeated indices, numpy keeps the last value assigned.
            new = first_use[indices.records] < 0
            first_use[indices.records[new][::-1]] = positions[new][::-1]
            last_use[indices.records] = positions
            self._num_positions = end
        used = np.flatnonzero(last_use >= 0)
        self.records: Ints = used[np.argsort(first_use[used])]
        self.first_use: Ints = first_use[self.records]
        self.last_use: Ints = last_use[self.records]
        self._number = np.full(num_records, -1, dtype=np.int64)
        self._number[self.records] = np.arange(len(self.records))
        if stored is not None:
            self.records = stored[self.records]
        self._to_come = self._chunks()
        self._held, self._begin = _NONE, 0

    @property
    def num_batches(self) -> int:
        """As in `EpochOrder`."""
        return -(-self._per_slot // self._batch_size) * len(self._slots)

    def batch_start(self, batch: int) -> int:
        """As in `EpochOrder`."""
        turn, slot = divmod(batch, len(self._slots))
        before = min(turn * self._batch_size, self._per_slot)
        return before * len(self._slots) + slot * min(self._batch_size, self._per_slot - before)

    def uses(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """As in `EpochOrder`."""
        if first < self._begin:
            self._rewind()
        while self._begin + len(self._held.records) < end:
            used = min(first - self._begin, len(self._held.records))
            rest = SampleIndices(*(column[used:] for column in self._held))
            self._held = laid_end_to_end([rest, next(self._to_come)])
            self._begin += used
        indices = SampleIndices(*(column[first - self._begin : end - self._begin] for column in self._held))
        return self._number[indices.records], indices.samples, np.zeros(end - first, dtype=np.int64)

    def requests(self, reads: Ints, choose: Choose) -> Iterator[Request | None]:
        """As in `EpochOrder`."""
        for record in self.records[reads].tolist():
            while (group := choose(record)) is None:
                yield None
            yield Request(record, group)

    @property
    def _per_slot(self) -> int:
        return self._num_positions // len(self._slots)

    def _rewind(self) -> None:
        self._to_come = self._chunks()
        self._held, self._begin = _NONE, 0

    def _chunks(self) -> Iterator[SampleIndices]:
        """Iterate over all positions in order."""
        if len(self._slots) == 1:
            return self._slots[0]()
        count = self._batch_size * max(1, _ROUGHLY // (self._batch_size * len(self._slots)))
        return self._by_turns([_in_chunks_of(count, slot()) for slot in self._slots])

    def _by_turns(self, slots: Sequence[Iterator[SampleIndices]]) -> Iterator[SampleIndices]:
        for chunks in zip(*slots, strict=True):
            turns, _ = in_turns(len(chunks[0].records), len(slots), self._batch_size)
            together = laid_end_to_end(chunks)
            yield SampleIndices(together.records[turns], together.samples[turns])


def _in_chunks_of(count: int, chunks: Iterator[SampleIndices]) -> Iterator[SampleIndices]:
    """Yield the same samples in chunks of `count`; the last may be shorter."""
    held: list[SampleIndices] = []
    num_held = 0
    for chunk in chunks:
        held.append(chunk)
        num_held += len(chunk.records)
        if num_held >= count:
            together = laid_end_to_end(held)
            whole = num_held // count * count
            for start in range(0, whole, count):
                yield SampleIndices(*(column[start : start + count] for column in together))
            held, num_held = [SampleIndices(*(column[whole:] for column in together))], num_held - whole
    if num_held:
        yield laid_end_to_end(held)


Order: TypeAlias = EpochOrder | StreamedOrder
