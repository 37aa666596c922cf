"""How many reads must be in flight, and how many ahead of those in use. Pure functions."""

from __future__ import annotations

import math
from typing import NamedTuple

from pcr_exp.config.loader import MAX_READS_IN_FLIGHT, ChangingStorageConfig, StorageConfig
from pcr_exp.system import MIB

_IN_FLIGHT_UNKNOWN = 4
_MIN_AHEAD = 4
_MAX_AHEAD_BYTES = 2**30
_MAX_START_BYTES = 64 * MIB
"""Limit on bytes held only for the start of an epoch."""
_FEW_THREADS = 64
_READS_PER_CALL = 16


def reads_in_flight(storage: StorageConfig | None, mean_read_bytes: float) -> int:
    """Return the reads in flight that make a rate, not latency, the limit (Little's law), plus two.

    The two extra are one read being verified and handed over, and one waiting its turn at the pipe. Seeks do
    not overlap: they are part of the rate, and more reads in flight would only queue at the disk head.
    Storage with unknown rates gets 4. The maximum of 512 suffices for more than 100 MiB/s in reads of 14 kB
    at a latency of 50 ms (results/object_stores).

    `storage.reads_in_flight` overrides the result if it is set.
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
    """Return the seconds in which storage serves only this read: its seek, then its transfer."""
    transfer_s = read_bytes / (storage.bandwidth_mib_per_s * MIB) if storage.bandwidth_mib_per_s else 0.0
    return storage.seek_ms / 1e3 + transfer_s


def longest_read_s(storage: StorageConfig | None, num_bytes: int) -> float:
    """Return the seconds that a single read of `num_bytes` takes at the lowest of the configured rates."""
    if storage is None:
        return 0.0
    slot_s = 1 / storage.requests_per_s if storage.requests_per_s else 0.0
    share = min([1.0, *storage.shares]) if isinstance(storage, ChangingStorageConfig) else 1.0
    return max(busy_s_per_read(storage, num_bytes / share), slot_s) + storage.latency_ms / 1e3


def reads_ahead(in_flight: int, at_once: int, at_start: int, mean_read_bytes: float) -> int:
    """Return the reads ahead of those in use: all in flight and all needed at once, up to 1 GiB.

    At least four within that limit, because batches are requested in bursts. Also all that an epoch starts
    with, up to 64 MiB. Otherwise, storage would idle at the end of an epoch, and training at the start of the
    next (`experiments.loaders.speed.epoch_starts` measures it).

    Args:
        in_flight: Reads to have in flight.
        at_once: Reads that one update may be the first to need.
        at_start: Reads that an epoch's first update needs.
        mean_read_bytes: Mean bytes per read at the largest scan group that may be read.
    """
    affordable = max(2, int(_MAX_AHEAD_BYTES / mean_read_bytes))
    for_start = min(at_start, int(_MAX_START_BYTES / mean_read_bytes))
    return min(max(in_flight, at_once, for_start, _MIN_AHEAD), affordable)


def reads_per_call(in_flight: int, reads_many: bool) -> int:
    """Return the reads that a thread makes in one call: several if too many threads would be needed.

    Args:
        in_flight: Reads to have in flight.
        reads_many: Whether the storage supports several reads in one call.
    """
    return _READS_PER_CALL if reads_many and in_flight > _FEW_THREADS else 1


def by_calls(in_flight: int, per_call: int) -> int:
    """Return the reads to have in flight: half as many again if a call makes several.

    The reads of a call begin and end together. Those that arrive first wait for the last, and all of them
    wait while the thread verifies one after another. In the meantime, they are not in flight.
    """
    return in_flight if per_call == 1 else in_flight + in_flight // 2


class Reading(NamedTuple):
    """How far a stream reads ahead."""

    in_flight: int
    """Reads to have in flight."""
    ahead: int
    """Reads ahead of those in use."""
    per_call: int = 1
    """Reads that a thread makes in one call."""

    @property
    def num_threads(self) -> int:
        """Threads needed for that many reads in flight."""
        return math.ceil(by_calls(self.in_flight, self.per_call) / self.per_call)
