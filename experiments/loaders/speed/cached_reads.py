"""Bytes that a cache saves in the loader's reading order: our prefix cache against two alternatives.

`python -m experiments.loaders.speed.cached_reads` writes cached_reads.csv into outputs/cache. Nothing is
decoded and no storage is slow; only bytes are counted. Records are 1/100,000 of ImageNet's (1,024 images in
110 MB at all scan groups), read in the order of `loading.lanes` through the cache that training uses.

    kept prefixes    `storage.cache`: evicts nothing; a higher group reads what is missing
    recent prefixes  the same, but evicts the least recently used prefix (LRU)
    whole files      reads a file whole when any part is needed; evicts the least recently used file

`bound`: a cache of C bytes saves a job at most C bytes per epoch, and no bytes that nobody had read before.
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
"""Share of a record's bytes up to each scan group, on 1,000 ImageNet images."""
RECORD_BYTES, SCALE = 1100, 100_000
NUM_RECORDS, IMAGES_PER_RECORD, BATCH_SIZE = 320, 16, 4
"""An epoch has 320 records, 8 in use at once. A batch is a quarter of a record, like 256 images of 1,024."""
EPOCHS = 9
CACHE_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Cache sizes, as shares of the bytes of all records at the highest group that is read."""
MIB_PER_S, LATENCY_S = 100, 0.05


class Reading(NamedTuple):
    """A way to choose scan groups."""

    group: Callable[[int, int, int], int]
    """Returns the group, given (seed, epoch, number of the read in the epoch)."""
    highest: int


def _balanced(seed: int, epoch: int, read: int) -> int:
    """Return a group that follows a bandwidth which changes every 40 reads."""
    return [2, 5, 10, 5][int(np.random.default_rng((seed, epoch, read // 40)).integers(4))]


READINGS = {
    "static": Reading(lambda *_: 5, 5),
    "rising": Reading(lambda _seed, epoch, _read: (1, 2, 5, 10)[min(3, epoch * 4 // EPOCHS)], 10),
    "balanced": Reading(_balanced, 10),
}


class ZerosStorage(Storage):
    """Files of any length, all zeros."""

    def read(self, path: str, offset: int, length: int) -> bytes:  # noqa: ARG002
        """Return `length` zeros."""
        return bytes(length)

    def size(self, path: str) -> int:  # noqa: ARG002
        """Return the size of a record."""
        return RECORD_BYTES


class RecentPrefixes:
    """LRU cache of at most `max_bytes` of prefixes."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._prefixes: OrderedDict[str, bytes] = OrderedDict()

    def get(self, path: str) -> bytes:
        """Return the cached prefix of a file; empty if there is none."""
        if path in self._prefixes:
            self._prefixes.move_to_end(path)
        return self._prefixes.get(path, b"")

    def put(self, path: str, prefix: bytes) -> None:
        """Cache a prefix, evicting others if needed."""
        self._left += len(self._prefixes.pop(path, b""))
        while self._prefixes and self._left < len(prefix):
            self._left += len(self._prefixes.popitem(last=False)[1])
        if len(prefix) <= self._left:
            self._prefixes[path] = prefix
            self._left -= len(prefix)

    def forget(self, path: str) -> bool:
        """Drop a file's prefix; return whether there was one."""
        held = self._prefixes.pop(path, b"")
        self._left += len(held)
        return bool(held)


class WholeFiles:
    """Storage that reads whole files and caches the most recently used."""

    def __init__(self, inner: CountingStorage, max_bytes: int) -> None:
        self._inner = inner
        self._files = RecentPrefixes(max_bytes)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return the requested part of a file that is read whole."""
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
    """Return the order in which one process with 8 lanes reads an epoch."""
    sizes = [IMAGES_PER_RECORD] * NUM_RECORDS
    places = EpochLanes(sizes, seed=seed, epoch=epoch, num_lanes=8, window=1).slot(0, 1)
    return epoch_order([SampleSequence.once(places)], BATCH_SIZE)


def simulate(reading: Reading, kind: str, max_bytes: int, num_jobs: int) -> dict[str, float]:
    """Read EPOCHS epochs by jobs that take turns on one cache; return what it saves after the first epoch.

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
    """Yield (record, bytes) of every read of an epoch; jobs take turns."""

    def one(seed: int) -> list[tuple[int, int]]:
        records = epoch_reads(seed, epoch).records.tolist()
        return [(record, _length(reading.group(seed, epoch, i))) for i, record in enumerate(records)]

    turns = chain.from_iterable(zip_longest(*(one(seed) for seed in range(num_jobs))))
    return (turn for turn in turns if turn is not None)


def _first_batch_s(reading: Reading, storage: Any, counted: CountingStorage) -> float:
    """Return a new job's seconds until its first batch, at 100 MiB/s and 50 ms, with the cache as it is."""
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
    """Yield a row for every reading, number of jobs, cache size and cache."""
    for (name, reading), jobs, share in product(READINGS.items(), num_jobs, (0.0, *CACHE_SHARES)):
        max_bytes = round(share * NUM_RECORDS * _length(reading.highest))
        for kind in CACHES if share else ("kept prefixes",):
            case = {"reading": name, "jobs": jobs, "cache_share": share, "cache": kind, "repeat": 0}
            yield {**case, **simulate(reading, kind, max_bytes, jobs)}


main = Study(__doc__, "outputs/cache/cached_reads.csv", rows, repeats=None, images=False)

if __name__ == "__main__":
    main()
