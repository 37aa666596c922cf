"""The layout of an epoch: L lanes of samples, determined by (seed, epoch) alone. Pure functions.

Records are shuffled and dealt whole to lanes of equal length. The few that no longer fit into a lane are laid
end to end and cut, so that every lane ends with one or two parts of them. The samples of a lane are shuffled
within a window of a few of its records. Lanes are interleaved.

A global batch consists of S micro-batches. Each micro-batch index owns L / S adjacent lanes, and each process
owns adjacent indices. So the samples of an index do not depend on the number of processes. One process reads
every record once; with W processes, at most W - 1 records are read by two of them.

Mixing: a global batch holds samples of L records and of the records that replace them. For batches of 64
images, `records_per_batch` returns

    records of             64   1,024 images
    8 lanes of 1 record   9.0     8.0 records per batch     (8 in use, and `records_ahead`)
    one window of 4       4.0     4.0 records per batch     (4 in use, 8 between windows, and `records_ahead`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pcr_exp.system.randomness import Purpose, stream

Ints = npt.NDArray[np.int64]


class Part(NamedTuple):
    """Samples `first` to `end` - 1 of a record."""

    record: int
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


class Lane(NamedTuple):
    """The parts of a lane, in order."""

    parts: list[Part]
    tail: int
    """Samples in the last parts, which come from records that were cut."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class SampleIndices(NamedTuple):
    """Samples in order of use, by record and number. Both arrays are int64 [n]."""

    records: Ints
    samples: Ints
    """Number within the record."""


class EpochLanes:
    """The lanes of an epoch. `slot` returns the samples of one micro-batch index."""

    def __init__(
        self, record_sizes: Sequence[int], *, seed: int, epoch: int, num_lanes: int, window: int
    ) -> None:
        """Deal records of the given sizes to lanes; `window` records of a lane are shuffled together."""
        line = stream(seed, Purpose.RECORD_ORDER, epoch).permutation(len(record_sizes))
        self._lanes = deal(record_sizes, line.tolist(), num_lanes)
        self._lane_sizes = [lane.size for lane in self._lanes]
        self._seed, self._epoch, self._window = seed, epoch, window
        # Mean number of samples in a window.
        self._step = window * sum(record_sizes) / len(record_sizes)

    def slot(self, slot: int, num_slots: int) -> SampleIndices:
        """Return the ceil(N / num_slots) samples of a micro-batch index; `num_slots` divides the lanes.

        An index with one sample less uses its last sample twice; one without samples uses another's.
        """
        return laid_end_to_end(self.chunks(slot, num_slots))

    def chunks(self, slot: int, num_slots: int) -> Iterator[SampleIndices]:
        """Yield the samples of `slot` in chunks, with at most two windows of each lane in memory."""
        num_lanes = len(self._lanes)
        own = range(slot * num_lanes // num_slots, (slot + 1) * num_lanes // num_slots)
        windows = [_windows(self._lanes[lane].parts, self._window, self._stream(lane)) for lane in own]
        tail = max(lane.tail for lane in self._lanes)
        together = side_by_side(windows, [self._lane_sizes[lane] for lane in own], self._step, tail)
        count = -(-sum(self._lane_sizes) // num_slots)
        return _filled_up(together, count, lambda: self._another(slot))

    def _stream(self, lane: int) -> np.random.Generator:
        return stream(self._seed, Purpose.SAMPLE_ORDER, self._epoch, lane)

    def _another(self, slot: int) -> SampleIndices:
        parts = [part for lane in self._lanes for part in lane.parts]
        part = parts[slot % len(parts)]
        return SampleIndices(np.array([part.record]), np.array([part.first]))


def chunks_in_stored_order(record_sizes: Sequence[int], slot: int, num_slots: int) -> Iterator[SampleIndices]:
    """Yield a micro-batch index's samples without shuffling: a contiguous run in stored order."""
    parts = list(_cut(record_sizes, range(len(record_sizes)), _quotas(sum(record_sizes), num_slots)))[slot]
    count = -(-sum(record_sizes) // num_slots)
    return _filled_up(_windows(parts, 1, None), count, lambda: SampleIndices(np.array([0]), np.array([0])))


def deal(record_sizes: Sequence[int], line: Iterable[int], num_lanes: int) -> list[Lane]:
    """Deal records to lanes of floor or ceil(N / num_lanes) samples; adjacent lanes combined are as even.

    Each record of `line` goes to the lane with the most room. Records that do not fit there are cut.
    """
    room = _quotas(sum(record_sizes), num_lanes)
    dealt: list[list[Part]] = [[] for _ in room]
    left_over = []
    for record in line:
        lane = max(range(num_lanes), key=room.__getitem__)
        if record_sizes[record] <= room[lane]:
            dealt[lane].append(Part(record, 0, record_sizes[record]))
            room[lane] -= record_sizes[record]
        else:
            left_over.append(record)
    tails = _cut(record_sizes, left_over, room)
    return [Lane([*parts, *tail], size) for parts, tail, size in zip(dealt, tails, room, strict=True)]


def side_by_side(
    windows: Sequence[Iterator[SampleIndices]], sizes: Sequence[int], step: float, tail: int
) -> Iterator[SampleIndices]:
    """Interleave K lanes, given by their windows and sizes, and yield the samples in chunks.

    Lanes take turns, but lane k runs k / K of a `step` ahead of lane 0, so that they do not all reach their
    next record at once. The lead builds up over the first `step` samples. It is given back over the last
    `step` samples before the `tail`, whose records the lanes share and use at the same time. So each sample
    has a time that rises along its lane. Samples are sorted by time; on ties, the first lane comes first.
    """
    shares = [-k / len(sizes) for k in range(len(sizes))]
    lanes = [_Turns(*lane, step, tail) for lane in zip(windows, sizes, shares, strict=True)]
    while True:
        for lane in lanes:
            lane.fill()
        filled = [lane for lane in lanes if len(lane.times)]
        if not filled:
            return
        # Samples not laid out yet come later than all laid-out samples of their lane.
        until = min((lane.times[-1] for lane in filled if lane.has_more), default=np.inf)
        taken = [lane.take(until) for lane in filled]
        order = np.argsort(np.concatenate([times for times, _ in taken]), kind="stable")
        records, samples = laid_end_to_end(places for _, places in taken)
        yield SampleIndices(records[order], samples[order])


class _Turns:
    """The laid-out but unused samples of a lane, and the time of each."""

    def __init__(
        self, windows: Iterator[SampleIndices], size: int, share: float, step: float, tail: int
    ) -> None:
        self._windows = windows
        self._size, self._share, self._step, self._tail = size, share, step, tail
        self._num_laid_out = 0
        self._places = SampleIndices(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        self.times = np.empty(0)

    @property
    def has_more(self) -> bool:
        return self._num_laid_out < self._size

    def fill(self) -> None:
        """Lay out the next window if no earlier samples are left."""
        if len(self.times) == 0 and self.has_more:
            self._places = next(self._windows)
            end = self._num_laid_out + len(self._places.records)
            positions = np.arange(self._num_laid_out, end)
            lead = np.clip(np.minimum(positions, self._size - self._tail - positions), 0, self._step)
            self.times = lead * self._share + positions
            self._num_laid_out = end

    def take(self, until: float) -> tuple[npt.NDArray[np.float64], SampleIndices]:
        """Remove the samples with times up to `until`; return (times, samples)."""
        count = int(np.searchsorted(self.times, until, side="right"))
        times, places = self.times[:count], SampleIndices(*(column[:count] for column in self._places))
        self.times, self._places = (
            self.times[count:],
            SampleIndices(*(column[count:] for column in self._places)),
        )
        return times, places


def num_held(record_sizes: Sequence[int], num_lanes: int, window: int) -> int:
    """Return the maximum number of records in use at once by `num_lanes` adjacent lanes.

    Each lane uses a window of records. In addition, a record shared by lanes is held while one of them has
    used its part and another has not. If all records have one size (an encoder's last may be smaller), that
    is at most one: all lanes reach their tails at the same time, except the lane with the smaller record.
    """
    sizes = sorted(record_sizes)
    alike = sizes[1:2] == sizes[-1:] or len(sizes) == 1
    waiting = min(1, num_lanes - 1) if alike else num_lanes - 1
    return min(num_lanes * window + waiting, len(record_sizes))


def records_per_batch(records: Ints, batch_size: int) -> float:
    """Return the mean number of records in a full batch; `records` holds the record of each sample."""
    batches = np.sort(records[: len(records) // batch_size * batch_size].reshape(-1, batch_size), axis=1)
    return float(1 + np.count_nonzero(np.diff(batches, axis=1), axis=1).mean())


def _quotas(num_samples: int, count: int) -> list[int]:
    return [(i + 1) * num_samples // count - i * num_samples // count for i in range(count)]


def _cut(sizes: Sequence[int], line: Iterable[int], quotas: Iterable[int]) -> Iterator[list[Part]]:
    """Lay the records of `line` end to end and cut them into chunks of these quotas."""
    rest = (Part(record, 0, sizes[record]) for record in line)
    part = Part(0, 0, 0)
    for quota in quotas:
        parts = []
        while quota > 0:
            if part.size == 0:
                part = next(rest)
            end = min(part.end, part.first + quota)
            if end > part.first:
                parts.append(part._replace(end=end))
            quota -= end - part.first
            part = part._replace(first=end)
        yield parts


def _windows(parts: Sequence[Part], window: int, rng: np.random.Generator | None) -> Iterator[SampleIndices]:
    """Yield the samples of every `window` parts, shuffled if there is an `rng`."""
    for start in range(0, len(parts), window):
        together = parts[start : start + window]
        records = np.repeat([part.record for part in together], [part.size for part in together])
        samples = np.concatenate([np.arange(part.first, part.end) for part in together])
        order = slice(None) if rng is None else rng.permutation(len(records))
        yield SampleIndices(records[order], samples[order])


def laid_end_to_end(chunks: Iterable[SampleIndices]) -> SampleIndices:
    """Concatenate the chunks."""
    return SampleIndices(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _filled_up(
    chunks: Iterable[SampleIndices], count: int, another: Callable[[], SampleIndices]
) -> Iterator[SampleIndices]:
    """Yield the chunks, then repeat the last sample up to `count`; without chunks, start from `another`."""
    num_given, last = 0, None
    for last in chunks:
        num_given += len(last.records)
        yield last
    if last is None:
        last = another()
        num_given = 1
        yield last
    if num_given < count:
        yield SampleIndices(*(np.repeat(column[-1:], count - num_given) for column in last))
