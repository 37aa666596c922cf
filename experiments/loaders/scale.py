"""Simulation of many workers on one storage: the loader's own order, and a queue of reads.

Each worker (a training process) reads the records of its share in the order of `pcr_exp.loading`, as far
ahead as the loader does. All workers take their updates together. Storage serves one read after another, at
its bandwidth and within its requests per second. Latency is added to each read, and overlaps between reads.
Decoding and training take each worker a fixed time per batch. Nothing sleeps, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.order import SampleSequence, epoch_order

Ints = npt.NDArray[np.int64]
DEFAULT_LANES = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """The storage, and the speed of a worker."""

    bandwidth_bytes_per_s: float
    """Bandwidth of the storage, which all workers share."""
    latency_s: float
    requests_per_s: float
    """Most requests that the storage serves per second (infinity: no limit)."""
    worker_images_per_s: float
    """Images/s that one worker decodes and trains once their bytes have arrived."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Result of a simulated epoch of all workers."""

    num_images: int
    seconds: float
    first_batch_s: float
    bytes_read: float
    num_reads: int
    busy_s: float
    """Seconds that each worker decoded and trained; for the rest of the epoch it waited."""

    @property
    def images_per_s(self) -> float:
        """Images/s of all workers together."""
        return self.num_images / self.seconds


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of all workers in an epoch, in the order of their requests. Arrays are int64 [R]."""

    issued: Ints
    """The update at whose start each read is requested."""
    needed: Ints
    """The update that waits for each read."""
    records: Ints
    num_updates: int
    num_images: int
    batch_size: int
    """Images per worker in an update."""


def reads_of_an_epoch(
    record_sizes: Sequence[int],
    *,
    num_workers: int,
    batch_size: int,
    window: int,
    records_ahead: int,
) -> Reads:
    """Lay out an epoch for all workers as the loader does.

    Args:
        record_sizes: Images of each record.
        num_workers: Training processes. There are 8 lanes, or one per worker if that is more.
        batch_size: Images per batch of a worker.
        window: Records that a lane shuffles together (`loader.shuffle_records`).
        records_ahead: Reads that a worker has in flight or waiting, beyond those in use.
    """
    num_lanes = max(DEFAULT_LANES, num_workers)
    lanes = EpochLanes(record_sizes, seed=0, epoch=0, num_lanes=num_lanes, window=window)
    issued, needed, records, places = [], [], [], []
    num_updates = 0
    for worker in range(num_workers):
        order = epoch_order([SampleSequence.once(lanes.slot(worker, num_workers))], batch_size)
        first = order.first_use // batch_size
        # A read is requested when the update starts that first uses the read `records_ahead` before it.
        at_once = np.zeros(min(records_ahead, len(first)), dtype=np.int64)
        issued.append(np.concatenate([at_once, first[:-records_ahead]]))
        needed.append(first)
        records.append(order.records)
        places.append(np.arange(len(first)))
        num_updates = len(order.batches) - 1
    asked, waited, which, place = (np.concatenate(each) for each in (issued, needed, records, places))
    turn = np.lexsort((place, asked))  # at the start of an update, workers take turns
    return Reads(asked[turn], waited[turn], which[turn], num_updates, sum(record_sizes), batch_size)


def simulate(
    machine: Machine,
    reads: Reads,
    record_bytes: npt.NDArray[np.float64],
    is_cached: npt.NDArray[np.bool_] | None = None,
) -> Simulated:
    """Simulate one epoch.

    Args:
        machine: Storage and workers.
        reads: Reads of all workers.
        record_bytes: [records] bytes of the prefix that is read of each record.
        is_cached: [records] records in a cache on the workers' side, whose reads cost nothing (None: none).
    """
    cached = np.zeros(len(record_bytes), dtype=bool) if is_cached is None else is_cached
    from_storage = ~cached[reads.records]
    num_bytes = np.where(from_storage, record_bytes[reads.records], 0.0)
    service_s = num_bytes / machine.bandwidth_bytes_per_s
    service_s = np.maximum(service_s, np.where(from_storage, 1 / machine.requests_per_s, 0.0))
    seconds, first_s = _run(machine, reads, service_s, from_storage)
    return Simulated(
        num_images=reads.num_images,
        seconds=seconds,
        first_batch_s=first_s,
        bytes_read=float(num_bytes.sum()),
        num_reads=int(from_storage.sum()),
        busy_s=reads.num_updates * reads.batch_size / machine.worker_images_per_s,
    )


def _run(
    machine: Machine,
    reads: Reads,
    service_s: npt.NDArray[np.float64],
    from_storage: npt.NDArray[np.bool_],
) -> tuple[float, float]:
    """Return the seconds until the last update is over, and until the first one has its batches."""
    bounds = np.searchsorted(reads.issued, np.arange(reads.num_updates + 1))
    update_s = reads.batch_size / machine.worker_images_per_s
    arrived_s = np.zeros(reads.num_updates)
    """By update, the time at which the last read that it waits for arrives."""
    now_s = free_s = first_s = 0.0
    for update in range(reads.num_updates):
        asked = slice(bounds[update], bounds[update + 1])
        if asked.start < asked.stop:
            served_s = max(free_s, now_s) + np.cumsum(service_s[asked])
            free_s = float(served_s[-1]) if service_s[asked].any() else free_s
            there_s = np.where(from_storage[asked], served_s + machine.latency_s, now_s)
            np.maximum.at(arrived_s, reads.needed[asked], there_s)
        now_s = max(now_s, float(arrived_s[update]))
        first_s = now_s if update == 0 else first_s
        now_s += update_s
    return now_s, first_s


def never_evicted(record_bytes: npt.NDArray[np.float64], cache_bytes: float) -> npt.NDArray[np.bool_]:
    """Return bool [records]: those that a cache without eviction holds from the second epoch on."""
    return np.cumsum(record_bytes) <= cache_bytes
