"""What a cache saves, by the order in which the loader reads: prefixes that are kept, beside what others do.

`python -m experiments.loaders.speed.cached_reads` writes cached_reads.csv into outputs/cache. Nothing is
decoded and no storage is slow: bytes are counted. Records are 1/100,000 of ImageNet's (1,024 images in 110 MB
at all scan groups), read in the order of `loading.lanes` through the cache that training uses.

    kept prefixes    `storage.cache`: nothing is evicted, a higher group reads what is missing
    recent prefixes  the same, but the prefix that was used longest ago makes room (LRU)
    whole files      a file is read whole when any of it is wanted; the one used longest ago makes room

`bound`: no cache of C bytes saves a job more than C in an epoch, nor bytes that nobody had read before.
"""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, product, zip_longest
from typing import Any, NamedTuple

import numpy as np

from experiments.results.study import Row, Study
from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.order import EpochOrder, SampleSequence, epoch_order
from pcr_exp.storage.cache import CachedStorage, MemoryCache, PrefixCache
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.protocol import Storage

GROUP_SHARES = {1: 0.061, 2: 0.138, 5: 0.466, 10: 1.0}
"""Of a record's bytes, by scan group, on 1,000 ImageNet images."""
RECORD_BYTES, SCALE = 1100, 100_000
NUM_RECORDS, IMAGES_PER_RECORD, BATCH_SIZE = 320, 16, 4
"""An epoch of 320 records, 8 of them in use; batches use as much of a record as 256 images of 1,024 do."""
EPOCHS = 9
CACHE_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Of the bytes of all records at the highest group that is read."""
MIB_PER_S, LATENCY_S = 100, 0.05


class Reading(NamedTuple):
    """A way to choose scan groups."""

    group: Callable[[int, int, int], int]
    """Given (seed, epoch, number of the read in it)."""
    highest: int


def _balanced(seed: int, epoch: int, read: int) -> int:
    """Bandwidth that changes every 40 reads, and a group that follows it."""
    return [2, 5, 10, 5][int(np.random.default_rng((seed, epoch, read // 40)).integers(4))]


READINGS = {
    "static": Reading(lambda *_: 5, 5),
    "rising": Reading(lambda _seed, epoch, _read: (1, 2, 5, 10)[min(3, epoch * 4 // EPOCHS)], 10),
    "balanced": Reading(_balanced, 10),
}


class ZerosStorage(Storage):
    """Files of any length, all zeros."""

    def read(self, path: str, offset: int, length: int) -> bytes:  # noqa: ARG002
        """That many zeros."""
        return bytes(length)

    def size(self, path: str) -> int:  # noqa: ARG002
        """That of a record."""
        return RECORD_BYTES


class RecentPrefixes:
    """Prefixes of at most `max_bytes`; the one that was used longest ago makes room."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._prefixes: OrderedDict[str, bytes] = OrderedDict()

    def get(self, path: str) -> bytes:
        """What is there of a file."""
        if path in self._prefixes:
            self._prefixes.move_to_end(path)
        return self._prefixes.get(path, b"")

    def put(self, path: str, prefix: bytes) -> None:
        """Keep a prefix, in place of others."""
        self._left += len(self._prefixes.pop(path, b""))
        while self._prefixes and self._left < len(prefix):
            self._left += len(self._prefixes.popitem(last=False)[1])
        if len(prefix) <= self._left:
            self._prefixes[path] = prefix
            self._left -= len(prefix)

    def forget(self, path: str) -> bool:
        """Keep nothing of a file any more; whether something was kept."""
        held = self._prefixes.pop(path, b"")
        self._left += len(held)
        return bool(held)


class WholeFiles:
    """A storage that reads whole files, and keeps those that were used last."""

    def __init__(self, inner: CountingStorage, max_bytes: int) -> None:
        self._inner = inner
        self._files = RecentPrefixes(max_bytes)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """The wanted part of the whole file."""
        file = self._files.get(path) or self._inner.read(path, 0, RECORD_BYTES)
        self._files.put(path, file)
        return file[offset : offset + length]


def _prefixes(open_one: Callable[[int], PrefixCache]) -> Callable[[CountingStorage, int], Any]:
    return lambda counted, max_bytes: CachedStorage(counted, open_one(max_bytes))


CACHES = {
    "kept prefixes": _prefixes(MemoryCache),
    "recent prefixes": _prefixes(RecentPrefixes),
    "whole files": WholeFiles,
}


@cache
def epoch_reads(seed: int, epoch: int) -> EpochOrder:
    """The order of an epoch, as one process reads it with 8 lanes."""
    sizes = [IMAGES_PER_RECORD] * NUM_RECORDS
    places = EpochLanes(sizes, seed=seed, epoch=epoch, num_lanes=8, window=1).slot(0, 1)
    return epoch_order([SampleSequence.once(places)], BATCH_SIZE)


def simulate(reading: Reading, kind: str, max_bytes: int, num_jobs: int) -> dict[str, float]:
    """Read EPOCHS epochs by jobs that take turns on one cache; what was saved after the first, of the bound.

    Raises:
        KeyError: there is no such cache.
    """
    counted = CountingStorage(ZerosStorage())
    storage = CACHES[kind](counted, max_bytes)
    wanted, read, bound = [0] * EPOCHS, [0] * EPOCHS, [0] * EPOCHS
    longest: dict[int, int] = {}
    for epoch in range(EPOCHS):
        seen = 0
        for record, length in _in_turns(reading, epoch, num_jobs):
            before = counted.bytes_read
            storage.read(f"{record}.pcr", 0, length)
            wanted[epoch] += length
            read[epoch] += counted.bytes_read - before
            seen += min(length, longest.get(record, 0))
            longest[record] = max(longest.get(record, 0), length)
        bound[epoch] = min(num_jobs * max_bytes, seen)
    saved = sum(wanted[1:]) - sum(read[1:])
    return {
        "read_share": sum(read[1:]) / sum(wanted[1:]),
        "saved_share": saved / sum(wanted[1:]),
        "bound_share": sum(bound[1:]) / sum(wanted[1:]),
        "first_batch_s": _first_batch_s(reading, storage, counted),
    }


def _in_turns(reading: Reading, epoch: int, num_jobs: int) -> Iterator[tuple[int, int]]:
    """(record, bytes) of every read of an epoch, job after job."""

    def one(seed: int) -> list[tuple[int, int]]:
        records = epoch_reads(seed, epoch).records.tolist()
        return [(record, _length(reading.group(seed, epoch, i))) for i, record in enumerate(records)]

    turns = chain.from_iterable(zip_longest(*(one(seed) for seed in range(num_jobs))))
    return (turn for turn in turns if turn is not None)


def _first_batch_s(reading: Reading, storage: Any, counted: CountingStorage) -> float:
    """Seconds that a new job waits for its first batch, at 100 MiB/s and 50 ms, on the cache as it is."""
    order = epoch_reads(seed=99, epoch=0)
    first = [int(r) for r, use in zip(order.records, order.first_use, strict=True) if use < BATCH_SIZE]
    before = counted.bytes_read, counted.num_reads
    for i, record in enumerate(first):
        storage.read(f"{record}.pcr", 0, _length(reading.group(99, 0, i)))
    num_bytes, num_reads = counted.bytes_read - before[0], counted.num_reads - before[1]
    return (LATENCY_S if num_reads else 0.0) + num_bytes * SCALE / (MIB_PER_S * 2**20)


def _length(group: int) -> int:
    return round(RECORD_BYTES * GROUP_SHARES[group])


def rows(_: Namespace, num_jobs: Sequence[int] = (1, 4)) -> Iterator[Row]:
    """Every reading, cache size and cache."""
    for (name, reading), jobs, share in product(READINGS.items(), num_jobs, (0.0, *CACHE_SHARES)):
        max_bytes = round(share * NUM_RECORDS * _length(reading.highest))
        for kind in CACHES if share else ("kept prefixes",):
            case = {"reading": name, "jobs": jobs, "cache_share": share, "cache": kind, "repeat": 0}
            yield {**case, **simulate(reading, kind, max_bytes, jobs)}


main = Study(__doc__, "outputs/cache/cached_reads.csv", rows, repeats=None, images=False)

if __name__ == "__main__":
    main()
