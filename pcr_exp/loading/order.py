"""The order of an epoch: which records are read, and which sample comes when. Pure functions.

Records are shuffled and laid end to end; of that line of N samples each of W ranks takes a run of ceil(N/W).
So ranks are disjoint, every sample has its turn exactly once, and batch counts are equal. A record on a
border is read by both neighbours, each takes its share. Where W does not divide N, the last ranks wrap around
to the line's start: fewer than W samples come twice.

A rank's reads are cut into windows of `shuffle_records`, and samples are shuffled inside a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pcr_exp.loading.randomness import Purpose, stream

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class EpochOrder:
    """What one rank reads in an epoch: R reads in W windows, n samples. All arrays are int64.

    Reads are numbered, and windows laid out, in the order in which they are wanted.
    """

    records: Ints
    """[R] record number of every read."""
    levels: Ints
    """[R] 0 reads a prefix of the record; k > 0 reads on, to the scan group that k-th repeats show."""
    bases: Ints
    """[R] the read that a read of level k > 0 continues; of level 0, the read itself."""
    window_reads: Ints
    """[W + 1] window w is made of the reads window_reads[w] to window_reads[w + 1]."""
    window_samples: Ints
    """[W + 1] and is needed for positions from window_samples[w] on; the last entry is n."""
    reads: Ints
    """[n] for every position, the read that its sample comes from."""
    samples: Ints
    """[n] and the sample's number in that record."""
    repeats: Ints
    """[n] and how often the epoch used it before."""
    first_use: Ints
    """[R] the first position that a read serves."""
    last_use: Ints
    """[R] the last one, also through reads that continue it."""


def samples_per_rank(num_samples: int, world_size: int) -> int:
    """Samples that every rank sees in an epoch."""
    return -(-num_samples // world_size)


def epoch_order(
    record_sizes: Sequence[int],
    *,
    seed: int,
    epoch: int,
    shuffle: bool,
    shuffle_records: int,
    rank: int = 0,
    world_size: int = 1,
) -> EpochOrder:
    """The order in which a rank sees its samples in an epoch.

    Args:
        record_sizes: Number of samples of every record.
        shuffle: False gives records and samples as they are stored (evaluation).
        shuffle_records: Reads per window.
    """
    sizes = np.asarray(record_sizes, dtype=np.int64)
    line = np.arange(len(sizes))
    if shuffle:
        # Keyed without the rank: all ranks cut the same line.
        line = stream(seed, Purpose.RECORD_ORDER, epoch).permutation(line)
    count = samples_per_rank(int(sizes.sum()), world_size)
    parts = list(_run(sizes[line], rank * count, count))
    rng = stream(seed, Purpose.SAMPLE_ORDER, epoch, rank) if shuffle else None
    # Without shuffling nothing is gained by waiting for a whole window.
    window_reads = _bounds(len(parts), shuffle_records if shuffle else 1)
    windows = [_window(parts, first, last, rng) for first, last in pairwise(window_reads)]
    reads = np.concatenate([reads for reads, _ in windows])
    return EpochOrder(
        records=line[[place for place, _, _ in parts]],
        levels=np.zeros(len(parts), dtype=np.int64),
        bases=np.arange(len(parts)),
        window_reads=window_reads,
        window_samples=np.cumsum([0, *(len(reads) for reads, _ in windows)]),
        reads=reads,
        samples=np.concatenate([samples for _, samples in windows]),
        repeats=np.zeros(len(reads), dtype=np.int64),
        first_use=_last_position(reads[::-1], len(parts), reverse=True),
        last_use=_last_position(reads, len(parts)),
    )


def _run(sizes: Ints, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """(place in line, first sample, end sample) of `count` samples from position `first` on, wrapping."""
    ends = np.cumsum(sizes)
    position = first % int(ends[-1])
    place = int(np.searchsorted(ends, position, side="right"))
    start = position - int(ends[place] - sizes[place])
    while count > 0:
        stop = min(int(sizes[place]), start + count)
        if stop > start:
            yield place, start, stop
        count -= stop - start
        place, start = (place + 1) % len(sizes), 0


def _bounds(count: int, step: int) -> Ints:
    return np.append(np.arange(0, count, step), count)


def _window(
    parts: Sequence[tuple[int, int, int]], first: int, last: int, rng: np.random.Generator | None
) -> tuple[Ints, Ints]:
    """(read, sample) of every sample in the reads `first` to `last`, shuffled if there is an `rng`."""
    counts = [stop - start for _, start, stop in parts[first:last]]
    reads = np.repeat(np.arange(first, last), counts)
    samples = np.concatenate([np.arange(start, stop) for _, start, stop in parts[first:last]])
    if rng is None:
        return reads, samples
    shuffled = rng.permutation(len(reads))
    return reads[shuffled], samples[shuffled]


def _last_position(reads: Ints, num_reads: int, *, reverse: bool = False) -> Ints:
    """The last position at which each read occurs; counted from the other end if `reverse`."""
    positions = np.arange(len(reads))
    found = np.empty(num_reads, dtype=np.int64)
    # Of repeated indices, numpy keeps the last one assigned.
    found[reads] = positions[::-1] if reverse else positions
    return found
