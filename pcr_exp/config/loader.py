"""How records are read, from which storage, and how they become batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Integral
from typing import Annotated

from omegaconf import MISSING

from pcr_exp.config.check import RATE, Bound, at_least, check_fields, one_of, or_null, require

DECODE_MODES = ("libjpeg", "unsmoothed", "scaled")

ANTIALIAS = True
"""Whether crops that are scaled down are filtered by default (measured: results/antialias)."""


MAX_TIMEOUT_S = 10**6
"""Longest timeout; the system's waits count milliseconds in 32 bits."""
_TIMEOUT = or_null(
    Bound(lambda seconds: 0 < seconds <= MAX_TIMEOUT_S, ""),
    f"seconds above 0, or null to wait forever; at most {MAX_TIMEOUT_S} (11 days)",
)


@dataclass(kw_only=True, slots=True)
class LoaderConfig:
    """How records become batches."""

    num_workers: Annotated[int, at_least(0)] = 1
    """Decoding processes; 0 decodes in the training process."""
    lanes: Annotated[int, at_least(1)] = 8
    """Records that all processes together read in parallel. Order and batches depend on it, but not on the
    number of processes, which must divide it."""
    shuffle_records: Annotated[int, at_least(1)] = 1
    """Consecutive records of a lane whose samples are shuffled together."""
    records_ahead: Annotated[int | None, or_null(at_least(1))] = None
    """Records read ahead of decoding; null sizes it as bandwidth x latency (Little's law)."""
    prefetch_batches: Annotated[int, at_least(1)] = 2
    """Decoded batches that wait per worker."""
    decode: Annotated[str, one_of(*DECODE_MODES)] = "scaled"
    """`libjpeg`: libjpeg's smoothed output. `unsmoothed`: without smoothing, and faster below scan group 10.
    `scaled`: in addition, groups 1 and 2 are decoded at 1/8 and 1/2 of the size and enlarged by the crop. It
    is the fastest mode, and the best on frozen features (results/decode_modes). With other scan scripts, it
    decodes at the smallest size that shows all that the groups contain."""
    antialias: bool = ANTIALIAS
    """Filter crops that are scaled down, as Pillow, torchvision and DALI do. With `scaled` there is less to
    filter, as images are decoded at a smaller size. Runs from before this setting did not filter."""
    on_corrupt: Annotated[str, one_of("fail", "replace")] = "fail"
    """`fail` stops at the first image that arrived damaged twice; `replace` trains on another image of its
    record, chosen by seed and epoch, and counts it in rows (`num_replaced`). Checksums detect all damage
    since records were written. Earlier damage may go unnoticed: decoding stops after a crop's last row."""
    timeout_s: Annotated[float | None, _TIMEOUT] = 300.0
    """Longest time in seconds that training waits for a read or a decoded batch before it raises an error
    (null: no limit)."""

    def __post_init__(self) -> None:
        check_fields(self, "loader")


def num_slots(batch_size: int, global_batch_size: int | None, world_size: int) -> int:
    """Return the number of micro-batches, of `batch_size` images, in a global batch; equal for all processes.

    Args:
        batch_size: Images per micro-batch.
        global_batch_size: Images per update (None: one micro-batch per process).
        world_size: Number of processes.

    Raises:
        SettingError: a batch has no image, or the global batch cannot be divided this way.
    """
    is_whole = isinstance(batch_size, Integral)
    require(is_whole and batch_size >= 1, "training.batch_size", batch_size, "a whole number, at least 1")
    whole = batch_size * world_size
    total = whole if global_batch_size is None else global_batch_size
    wanted = (
        f"a multiple of {whole} (batch_size={batch_size} x world_size={world_size}), because every process "
        "trains on the same number of whole batches. Change it, the batch size or the number of processes"
    )
    require(total >= 1 and total % whole == 0, "training.global_batch_size", total, wanted)
    return total // batch_size


def check_lanes(lanes: int, slots: int, world_size: int) -> None:
    """Refuse a number of lanes that micro-batches cannot share equally.

    Raises:
        SettingError: names the values that would work.
    """
    wanted = (
        f"a multiple of {slots}, the number of batches in a global batch (world_size={world_size}, "
        f"{slots // world_size} per process), such as {-(-lanes // slots) * slots}; or start a number of "
        "processes that divides it. The order of samples depends on the lanes"
    )
    require(lanes % slots == 0, "loader.lanes", lanes, wanted)


MAX_READS_IN_FLIGHT = 512
"""With more, one Python process does not read faster (results/throttle)."""
_IN_FLIGHT = or_null(
    Bound(lambda num: 1 <= num <= MAX_READS_IN_FLIGHT, f"1 to {MAX_READS_IN_FLIGHT}, a thread each")
)
_RISING_SECONDS = Bound(
    lambda times: all(a < b for a, b in pairwise([0.0, *times, math.inf])), "rising seconds above 0"
)


@dataclass(kw_only=True, slots=True)
class StorageConfig:
    """Speed limits of storage. null means no limit."""

    name: str = MISSING
    """Name of the storage in runs and figures."""
    bandwidth_mib_per_s: Annotated[float | None, RATE] = None
    """MiB/s that all processes of a run share (null: no limit)."""
    latency_ms: Annotated[float, at_least(0)] = 0.0
    """Time from a request to its first byte, as on networks and flash. Concurrent requests wait at the same
    time."""
    seek_ms: Annotated[float, at_least(0)] = 0.0
    """Seek time per request, as on disks. One head seeks, transfers, then seeks again, so that concurrent
    requests hide none of it."""
    requests_per_s: Annotated[float | None, RATE] = None
    """Requests answered per second (null: no limit)."""
    reads_in_flight: Annotated[int | None, _IN_FLIGHT] = None
    """Concurrent reads of the loader, each in its own thread. null derives them from bandwidth and latency,
    or uses 4 if these are unknown. Set it for storage that is really remote, such as s3://."""
    cache: str | None = None
    """Cache bytes read from training records, up to `cache_mib`: in `memory`, or in `pcr-exp-cache` inside a
    local folder, which all processes of a user may share. Nothing is evicted. A higher scan group reads only
    the missing bytes."""
    cache_mib: float = 0.0
    """Capacity of the cache in MiB; that of a folder is shared by all processes that use it."""
    cold_cache: bool = False
    """Drop the training records from the page cache before training, as far as the kernel allows. The log and
    the manifest state what stayed. Later epochs may find what earlier ones read in the page cache."""

    def __post_init__(self) -> None:
        check_fields(self, "storage")
        is_sized = (self.cache is None) == (self.cache_mib == 0) and 0 <= self.cache_mib < math.inf
        wanted = "more than 0 with storage.cache, and 0 without"
        require(is_sized, "storage.cache_mib", self.cache_mib, wanted)


@dataclass(kw_only=True, slots=True)
class ChangingStorageConfig(StorageConfig):
    """Storage shared with others, whose bandwidth changes with time."""

    changes_s: Annotated[list[float], _RISING_SECONDS] = field(default_factory=list)
    """Times in seconds since the first read at which the bandwidth changes."""
    shares: list[float] = field(default_factory=list)
    """Share of the bandwidth that is available from each time in `changes_s` on."""

    def __post_init__(self) -> None:
        StorageConfig.__post_init__(self)
        wanted = f"as many shares in (0, 1] as there are storage.changes_s={self.changes_s}"
        fits = len(self.shares) == len(self.changes_s) and all(0 < share <= 1 for share in self.shares)
        require(fits, "storage.shares", self.shares, wanted)
        limit = self.bandwidth_mib_per_s
        wanted = "a rate, because storage.shares are shares of it"
        require(limit is not None or not self.shares, "storage.bandwidth_mib_per_s", limit, wanted)


STORAGE_SCHEMAS: dict[str, type[StorageConfig]] = {"changing": ChangingStorageConfig}
