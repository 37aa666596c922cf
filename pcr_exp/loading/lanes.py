"""How an epoch is laid out: L lanes of samples, from (seed, epoch) alone. Pure functions.

Records are shuffled and dealt, whole, to lanes of equal length. The few that fit into no lane any more are
laid end to end and cut, so that every lane ends with a part or two of them. A lane's samples are shuffled
inside a window of a few of its records; lanes are read side by side.

S slots of a global batch own L / S neighbouring lanes each, and processes own neighbouring slots. So what a
slot sees does not depend on how many processes there are, of one process every record is read once, and of W
processes at most W - 1 records are read by two.

How well this mixes: a global batch holds samples of L records, and of those that take their places. Of
batches of 64 images, `records_per_batch` counts

    records of             64   1,024 images
    8 lanes of 1 record   9.0     8.0 records per batch     (8 in use, and `records_ahead`)
    one window of 4       4.0     4.0, as it was before     (4 in use, 8 where batches meet, and as many)
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
    """The parts that a lane is made of, in order."""

    parts: list[Part]
    tail: int
    """Samples of the last ones, of records that were cut."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class SampleIndices(NamedTuple):
    """Samples by their places, in the order in which they are used; both int64 [n]."""

    records: Ints
    samples: Ints
    """Number in the record."""


class EpochLanes:
    """The lanes of an epoch; `slot` gives what a slot of the global batch uses of them."""

    def __init__(
        self, record_sizes: Sequence[int], *, seed: int, epoch: int, num_lanes: int, window: int
    ) -> None:
        """Deal records of so many samples to lanes; `window` records of a lane are shuffled together."""
        line = stream(seed, Purpose.RECORD_ORDER, epoch).permutation(len(record_sizes))
        self._lanes = deal(record_sizes, line.tolist(), num_lanes)
        self._lane_sizes = [lane.size for lane in self._lanes]
        self._seed, self._epoch, self._window = seed, epoch, window
        # Samples that a lane takes to use up a window.
        self._step = window * sum(record_sizes) / len(record_sizes)

    def slot(self, slot: int, num_slots: int) -> SampleIndices:
        """What a slot uses; `num_slots` divides the number of lanes, and each uses ceil(N / num_slots).

        One that has a sample less uses its last one twice, and one that has none uses another's.
        """
        return laid_end_to_end(self.chunks(slot, num_slots))

    def chunks(self, slot: int, num_slots: int) -> Iterator[SampleIndices]:
        """What `slot` gives, a chunk after the other: two windows of each lane are in memory at most."""
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
    """What a slot uses where nothing is shuffled: a run of the records as they are stored, one by one."""
    parts = list(_cut(record_sizes, range(len(record_sizes)), _quotas(sum(record_sizes), num_slots)))[slot]
    count = -(-sum(record_sizes) // num_slots)
    return _filled_up(_windows(parts, 1, None), count, lambda: SampleIndices(np.array([0]), np.array([0])))


def deal(record_sizes: Sequence[int], line: Iterable[int], num_lanes: int) -> list[Lane]:
    """Lanes of floor or ceil(N / num_lanes) samples, so that neighbours together are as equal.

    Each record of `line` goes to the lane that has most room for it; those that find none are cut.
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
    """K lanes of these sizes, given by their windows, as one run of samples, a chunk after the other.

    Lanes take turns, but lane k is k / K of a `step` ahead of lane 0, so that they do not all come to the
    next record at once. The lead is won in the first `step` of samples, and given back in the last one before
    the `tail`, whose records lanes share and use at the same time. So each sample has a time, which rises
    along a lane: the run is sorted by it, and of lanes at the same time the first comes first.
    """
    shares = [-k / len(sizes) for k in range(len(sizes))]
    lanes = [_Turns(*lane, step, tail) for lane in zip(windows, sizes, shares, strict=True)]
    while True:
        for lane in lanes:
            lane.fill()
        filled = [lane for lane in lanes if len(lane.times)]
        if not filled:
            return
        # What is not laid out yet comes later than all that is laid out of its lane.
        until = min((lane.times[-1] for lane in filled if lane.has_more), default=np.inf)
        taken = [lane.take(until) for lane in filled]
        order = np.argsort(np.concatenate([times for times, _ in taken]), kind="stable")
        records, samples = laid_end_to_end(places for _, places in taken)
        yield SampleIndices(records[order], samples[order])


class _Turns:
    """What is laid out of a lane and not used yet, and the time of each sample."""

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
        """Lay out the next window if nothing is left of those before."""
        if len(self.times) == 0 and self.has_more:
            self._places = next(self._windows)
            end = self._num_laid_out + len(self._places.records)
            positions = np.arange(self._num_laid_out, end)
            lead = np.clip(np.minimum(positions, self._size - self._tail - positions), 0, self._step)
            self.times = lead * self._share + positions
            self._num_laid_out = end

    def take(self, until: float) -> tuple[npt.NDArray[np.float64], SampleIndices]:
        """What has its time up to `until`, with these times."""
        count = int(np.searchsorted(self.times, until, side="right"))
        times, places = self.times[:count], SampleIndices(*(column[:count] for column in self._places))
        self.times, self._places = (
            self.times[count:],
            SampleIndices(*(column[count:] for column in self._places)),
        )
        return times, places


def num_held(record_sizes: Sequence[int], num_lanes: int, window: int) -> int:
    """The most records that are in use at once by this many neighbouring lanes.

    Each lane uses a window of them. Besides, a record that lanes share is held while one of them has used
    its part and another has not. Where records have one size (one of them may be smaller, as an encoder's
    last), that is one at most: lanes come to their tails at the same time, all but the one with the smaller.
    """
    sizes = sorted(record_sizes)
    alike = sizes[1:2] == sizes[-1:] or len(sizes) == 1
    waiting = min(1, num_lanes - 1) if alike else num_lanes - 1
    return min(num_lanes * window + waiting, len(record_sizes))


def records_per_batch(records: Ints, batch_size: int) -> float:
    """How many records a full batch has samples of, in the mean; `records` says whose each sample is."""
    batches = np.sort(records[: len(records) // batch_size * batch_size].reshape(-1, batch_size), axis=1)
    return float(1 + np.count_nonzero(np.diff(batches, axis=1), axis=1).mean())


def _quotas(num_samples: int, count: int) -> list[int]:
    return [(i + 1) * num_samples // count - i * num_samples // count for i in range(count)]


def _cut(sizes: Sequence[int], line: Iterable[int], quotas: Iterable[int]) -> Iterator[list[Part]]:
    """The records of `line` laid end to end, cut into chunks of these quotas."""
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
    """The samples of every `window` of parts, shuffled; as they come without an `rng`."""
    for start in range(0, len(parts), window):
        together = parts[start : start + window]
        records = np.repeat([part.record for part in together], [part.size for part in together])
        samples = np.concatenate([np.arange(part.first, part.end) for part in together])
        order = slice(None) if rng is None else rng.permutation(len(records))
        yield SampleIndices(records[order], samples[order])


def laid_end_to_end(chunks: Iterable[SampleIndices]) -> SampleIndices:
    """All of them as one."""
    return SampleIndices(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _filled_up(
    chunks: Iterable[SampleIndices], count: int, another: Callable[[], SampleIndices]
) -> Iterator[SampleIndices]:
    """These, and then the last sample as often as `count` of them want; `another` stands in for none."""
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
