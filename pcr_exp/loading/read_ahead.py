"""How many reads must be under way at a time, and ahead of those in use. Pure functions."""

from __future__ import annotations

import math
from typing import NamedTuple

from pcr_exp.config.loader import MAX_READS_IN_FLIGHT, StorageConfig
from pcr_exp.system import MIB

_IN_FLIGHT_UNKNOWN = 4
_MIN_AHEAD = 4
_MAX_AHEAD_BYTES = 2**30
_MAX_START_BYTES = 64 * MIB
"""Limit of the bytes that are held for an epoch's start alone."""
_FEW_THREADS = 64
_READS_PER_CALL = 16


def reads_in_flight(storage: StorageConfig | None, mean_read_bytes: float) -> int:
    """Reads that must be in flight for a rate, not latency, to be the limit (Little's law), plus two.

    The two are one that is being checked and handed over, and one that waits its turn at the pipe. Seeks do
    not overlap: they are part of the rate, and more in flight would only queue at the head. Storage whose
    rates are not known gets 4. No more than 512, which are 100 MiB/s of 14 kB at 50 ms and more
    (results/object_stores).

    `storage.reads_in_flight`, where it is set, is the answer.
    """
    if storage is None:
        return _IN_FLIGHT_UNKNOWN
    if storage.reads_in_flight is not None:
        return storage.reads_in_flight
    busy_s = busy_s_per_read(storage, mean_read_bytes)
    reads_per_s = min(1 / busy_s if busy_s else math.inf, storage.requests_per_s or math.inf)
    if math.isinf(reads_per_s):
        return _IN_FLIGHT_UNKNOWN
    return min(math.ceil(reads_per_s * storage.latency_ms / 1e3) + 2, MAX_READS_IN_FLIGHT)


def busy_s_per_read(storage: StorageConfig, read_bytes: float) -> float:
    """Seconds in which the storage serves this read and no other: its seek, then its bytes."""
    transfer_s = read_bytes / (storage.bandwidth_mib_per_s * MIB) if storage.bandwidth_mib_per_s else 0.0
    return storage.seek_ms / 1e3 + transfer_s


def longest_read_s(storage: StorageConfig | None, num_bytes: int) -> float:
    """Seconds that a read of `num_bytes` takes at the rates that are configured, alone on the storage."""
    if storage is None:
        return 0.0
    slot_s = 1 / storage.requests_per_s if storage.requests_per_s else 0.0
    return max(busy_s_per_read(storage, num_bytes), slot_s) + storage.latency_ms / 1e3


def reads_ahead(in_flight: int, at_once: int, at_start: int, mean_read_bytes: float) -> int:
    """Reads to be ahead of those in use: all that may be in flight or are needed at once; up to 1 GiB.

    At least four, where they take no more: batches are asked for in bursts. And those that an epoch starts
    with, up to 64 MiB of them: else storage rests at the end of an epoch, and training at the start of the
    next (`experiments.loaders.speed.epoch_starts` measures it).

    Args:
        in_flight: Reads that are to be under way.
        at_once: Reads that one update may be the first to need.
        at_start: Reads that an epoch's first update needs.
        mean_read_bytes: Of the largest scan group that may be read.
    """
    affordable = max(2, int(_MAX_AHEAD_BYTES / mean_read_bytes))
    for_start = min(at_start, int(_MAX_START_BYTES / mean_read_bytes))
    return min(max(in_flight, at_once, for_start, _MIN_AHEAD), affordable)


def reads_per_call(in_flight: int, reads_many: bool) -> int:
    """Reads that a thread does by one call: several, where so many threads would wait for each other.

    Args:
        in_flight: Reads that are to be under way.
        reads_many: Whether the storage does several by one call.
    """
    return _READS_PER_CALL if reads_many and in_flight > _FEW_THREADS else 1


def by_calls(in_flight: int, per_call: int) -> int:
    """Reads to have under way where calls do several: half as many again.

    The reads of a call begin and end together, and meanwhile none of them is under way: those that came
    first wait for the last, and all of them for the thread that verifies one after the other.
    """
    return in_flight if per_call == 1 else in_flight + in_flight // 2


class Reading(NamedTuple):
    """How far a stream reads ahead."""

    in_flight: int
    """Reads that are to be under way."""
    ahead: int
    """Reads ahead of those in use."""
    per_call: int = 1
    """Reads that a thread does by one call."""

    @property
    def num_threads(self) -> int:
        """Threads that have so many reads under way."""
        return math.ceil(by_calls(self.in_flight, self.per_call) / self.per_call)
