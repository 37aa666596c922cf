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

from collections.abc import Iterable, Iterator, Sequence
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


class Places(NamedTuple):
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
        self._seed, self._epoch, self._window = seed, epoch, window
        # Samples that a lane takes to use up a window.
        self._step = window * sum(record_sizes) / len(record_sizes)

    def slot(self, slot: int, num_slots: int) -> Places:
        """What a slot uses; `num_slots` divides the number of lanes, and each uses ceil(N / num_slots).

        One that has a sample less uses its last one twice, and one that has none uses another's.
        """
        num_lanes = len(self._lanes)
        own = range(slot * num_lanes // num_slots, (slot + 1) * num_lanes // num_slots)
        lanes = [self._lanes[lane] for lane in own]
        places = [
            _shuffled(self._lanes[lane].parts, self._window, self._stream(lane))
            for lane in own
            if self._lanes[lane].parts
        ]
        together = _laid_end_to_end(places) if places else self._another(slot)
        tail = max(lane.tail for lane in self._lanes)
        turns = side_by_side([lane.size for lane in lanes], self._step, tail)
        if places:
            together = Places(together.records[turns], together.samples[turns])
        return _filled_up(together, -(-sum(lane.size for lane in self._lanes) // num_slots))

    def _stream(self, lane: int) -> np.random.Generator:
        return stream(self._seed, Purpose.SAMPLE_ORDER, self._epoch, lane)

    def _another(self, slot: int) -> Places:
        parts = [part for lane in self._lanes for part in lane.parts]
        part = parts[slot % len(parts)]
        return Places(np.array([part.record]), np.array([part.first]))


def slot_in_stored_order(record_sizes: Sequence[int], slot: int, num_slots: int) -> Places:
    """What a slot uses where nothing is shuffled: a run of the records as they are stored."""
    parts = list(_cut(record_sizes, range(len(record_sizes)), _quotas(sum(record_sizes), num_slots)))[slot]
    places = _shuffled(parts, 1, None) if parts else Places(np.array([0]), np.array([0]))
    return _filled_up(places, -(-sum(record_sizes) // num_slots))


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


def side_by_side(sizes: Sequence[int], step: float, tail: int) -> Ints:
    """The turns of K lanes of these sizes: positions in the lanes laid end to end, [sum of sizes].

    Lanes take turns, but lane k is k / K of a `step` ahead of lane 0, so that they do not all come to the
    next record at once. The lead is won in the first `step` of samples, and given back in the last one before
    the `tail`, whose records lanes share and use at the same time.
    """
    times = [_lead(size, step, tail) * (-k / len(sizes)) + np.arange(size) for k, size in enumerate(sizes)]
    return np.argsort(np.concatenate(times), kind="stable")


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


def _lead(size: int, step: float, tail: int) -> npt.NDArray[np.float64]:
    positions = np.arange(size)
    return np.clip(np.minimum(positions, size - tail - positions), 0, step)


def _quotas(num_samples: int, count: int) -> list[int]:
    return [(i + 1) * num_samples // count - i * num_samples // count for i in range(count)]


def _cut(sizes: Sequence[int], line: Iterable[int], quotas: Iterable[int]) -> Iterator[list[Part]]:
    """The records of `line` laid end to end, cut into stretches of these quotas."""
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


def _shuffled(parts: Sequence[Part], window: int, rng: np.random.Generator | None) -> Places:
    """The samples of parts, shuffled inside every `window` of them; as they come without an `rng`."""
    places = []
    for start in range(0, len(parts), window):
        together = parts[start : start + window]
        records = np.repeat([part.record for part in together], [part.size for part in together])
        samples = np.concatenate([np.arange(part.first, part.end) for part in together])
        order = slice(None) if rng is None else rng.permutation(len(records))
        places.append(Places(records[order], samples[order]))
    return _laid_end_to_end(places)


def _laid_end_to_end(places: Sequence[Places]) -> Places:
    return Places(*(np.concatenate(columns) for columns in zip(*places, strict=True)))


def _filled_up(places: Places, count: int) -> Places:
    missing = count - len(places.records)
    return Places(*(np.append(column, np.repeat(column[-1:], missing)) for column in places))
