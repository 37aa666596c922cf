"""How records are read: from which storage, and how they become batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Integral
from typing import Annotated

from omegaconf import MISSING

from pcr_exp.config.check import RATE, Bound, above, at_least, check_fields, one_of, or_null, require

DECODE_MODES = ("libjpeg", "unsmoothed", "scaled")

ANTIALIAS = True
"""Whether crops that shrink are filtered, unless told otherwise (measured: results/antialias)."""


@dataclass(kw_only=True, slots=True)
class LoaderConfig:
    """How records become batches."""

    num_workers: Annotated[int, at_least(0)] = 1
    """Decoding processes; 0 decodes in the training process."""
    lanes: Annotated[int, at_least(1)] = 8
    """Records that all processes together read side by side. Order and batches depend on it, and not on the
    number of processes, which must divide it."""
    shuffle_records: Annotated[int, at_least(1)] = 1
    """Records of a lane whose samples are shuffled together."""
    records_ahead: Annotated[int | None, or_null(at_least(1))] = None
    """Records read ahead of decoding; null sizes it from bandwidth x latency (Little's law)."""
    prefetch_batches: Annotated[int, at_least(1)] = 2
    """Decoded batches waiting per worker."""
    decode: Annotated[str, one_of(*DECODE_MODES)] = "scaled"
    """`libjpeg`: libjpeg's smoothed output. `unsmoothed`: without smoothing, faster below scan group 10.
    `scaled`: also groups 1 and 2 at 1/8 and 1/2 of the size, which the crop enlarges: the fastest, and the
    best on frozen features (results/decode_modes). Other scan scripts than the default: at the smallest size
    that shows all that the groups hold."""
    antialias: bool = ANTIALIAS
    """Filter crops that shrink, as Pillow, torchvision and DALI do. With `scaled` there is less to filter,
    for images are decoded smaller. Runs from before this setting did not filter."""
    on_corrupt: Annotated[str, one_of("fail", "replace")] = "fail"
    """`fail` stops at the first image that came damaged twice; `replace` trains on another image of its
    record, chosen by seed and epoch, and counts it in rows (`num_replaced`). Checksums see all damage since
    records were written. Earlier damage is not always noticed: decoding ends behind a crop's last row."""
    timeout_s: Annotated[float | None, or_null(above(0), "seconds above 0, or null to wait forever")] = 300.0
    """Longest wait of training without a read or a decoded batch, in seconds; beyond, an error (null: no
    limit)."""

    def __post_init__(self) -> None:
        check_fields(self, "loader")


def num_slots(batch_size: int, global_batch_size: int | None, world_size: int) -> int:
    """How many batches of `batch_size` images a global batch is made of; every process gives as many.

    Args:
        batch_size: Images of a slot's batch.
        global_batch_size: Images of an update (None: a batch of each process).
        world_size: Processes.

    Raises:
        SettingError: a batch has no image, or the global batch cannot be divided like this.
    """
    is_whole = isinstance(batch_size, Integral)
    require(is_whole and batch_size >= 1, "training.batch_size", batch_size, "a whole number, at least 1")
    whole = batch_size * world_size
    total = whole if global_batch_size is None else global_batch_size
    wanted = (
        f"a multiple of {whole}, batch_size={batch_size} x world_size={world_size}, as every process trains "
        "on the same number of whole batches: set batch_size, or start as many processes, so that it divides"
    )
    require(total >= 1 and total % whole == 0, "training.global_batch_size", total, wanted)
    return total // batch_size


def check_lanes(lanes: int, slots: int, world_size: int) -> None:
    """Refuse lanes that slots cannot share equally.

    Raises:
        SettingError: says what to set.
    """
    wanted = (
        f"a multiple of {slots}, the batches that a global batch is made of (world_size={world_size}, "
        f"{slots // world_size} of each process), such as {-(-lanes // slots) * slots}; or start as many "
        "processes as divide it. The order of samples depends on the lanes"
    )
    require(lanes % slots == 0, "loader.lanes", lanes, wanted)


MAX_READS_IN_FLIGHT = 512
"""Beyond, one Python process brings no more reads a second (results/throttle)."""
_IN_FLIGHT = or_null(
    Bound(lambda num: 1 <= num <= MAX_READS_IN_FLIGHT, f"1 to {MAX_READS_IN_FLIGHT}, a thread each")
)
_RISING_SECONDS = Bound(
    lambda times: all(a < b for a, b in pairwise([0.0, *times, math.inf])), "rising seconds above 0"
)


@dataclass(kw_only=True, slots=True)
class StorageConfig:
    """How fast bytes come. null means no limit."""

    name: str = MISSING
    """The storage's name in runs and figures."""
    bandwidth_mib_per_s: Annotated[float | None, RATE] = None
    """MiB/s that all processes of a run share (null: no limit)."""
    latency_ms: Annotated[float, at_least(0)] = 0.0
    """Time from a request to its first byte, as on networks and flash: requests in flight wait at the same
    time."""
    seek_ms: Annotated[float, at_least(0)] = 0.0
    """Seek per request, as on disks: one head seeks, transfers, and then seeks again, so requests in flight
    hide none of it."""
    requests_per_s: Annotated[float | None, RATE] = None
    """Requests a second that are answered (null: no limit)."""
    reads_in_flight: Annotated[int | None, _IN_FLIGHT] = None
    """Reads that the loader has under way at a time, each in a thread of its own; null: as many as bandwidth
    and latency ask for, and 4 where they are not known. For storage that is really remote, such as s3://."""
    cache: str | None = None
    """Keep what was read of training records, up to `cache_mib`: in `memory`, or in `pcr-exp-cache` inside a
    local folder, which all processes of a user may share. Nothing is evicted; a higher scan group reads only
    what is missing."""
    cache_mib: float = 0.0
    """Bytes that the cache may take; of a folder, for all that share it."""
    cold_cache: bool = False
    """Drop the training records from the page cache before training, as far as the kernel allows; the log and
    the manifest say what stayed. What an epoch has read, later ones may find there."""

    def __post_init__(self) -> None:
        check_fields(self, "storage")
        is_sized = (self.cache is None) == (self.cache_mib == 0) and 0 <= self.cache_mib < math.inf
        wanted = "more than 0 with storage.cache, and 0 without"
        require(is_sized, "storage.cache_mib", self.cache_mib, wanted)


@dataclass(kw_only=True, slots=True)
class ChangingStorageConfig(StorageConfig):
    """Storage that others use too: its bandwidth changes with time."""

    changes_s: Annotated[list[float], _RISING_SECONDS] = field(default_factory=list)
    """Seconds since the first read at which it changes."""
    shares: list[float] = field(default_factory=list)
    """Shares of the bandwidth that hold from each of `changes_s` on."""

    def __post_init__(self) -> None:
        StorageConfig.__post_init__(self)
        wanted = f"as many shares in (0, 1] as there are storage.changes_s={self.changes_s}"
        fits = len(self.shares) == len(self.changes_s) and all(0 < share <= 1 for share in self.shares)
        require(fits, "storage.shares", self.shares, wanted)
        limit = self.bandwidth_mib_per_s
        wanted = "a rate, of which storage.shares are shares"
        require(limit is not None or not self.shares, "storage.bandwidth_mib_per_s", limit, wanted)


STORAGE_SCHEMAS: dict[str, type[StorageConfig]] = {"changing": ChangingStorageConfig}
