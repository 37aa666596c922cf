"""How fast bytes come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

from omegaconf import MISSING

from pcr_exp.config.check import require

MAX_READS_IN_FLIGHT = 512
"""Beyond, one Python process brings no more reads a second (results/throttle)."""


@dataclass(kw_only=True, slots=True)
class StorageConfig:
    """How fast bytes come. null means no limit."""

    name: str = MISSING
    """What runs and figures call this storage."""
    bandwidth_mib_per_s: float | None = None
    """MiB/s that all processes of a run share (null: no limit)."""
    latency_ms: float = 0.0
    """From a request to its first byte, as networks and flash have it: requests in flight wait together."""
    seek_ms: float = 0.0
    """What each request takes the storage's one head, as disks have it: the head seeks for one request and
    transfers its bytes before it seeks for the next, so that requests in flight hide nothing of it."""
    requests_per_s: float | None = None
    """Requests a second that are answered (null: no limit)."""
    reads_in_flight: int | None = None
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
        for key in ("bandwidth_mib_per_s", "requests_per_s"):
            value = getattr(self, key)
            require(
                value is None or value > 0, f"storage.{key}", value, "a rate above 0, or null for no limit"
            )
        for key in ("latency_ms", "seek_ms"):
            value = getattr(self, key)
            require(0 <= value < math.inf, f"storage.{key}", value, "0 or more")
        is_sized = (self.cache is None) == (self.cache_mib == 0) and 0 <= self.cache_mib < math.inf
        wanted = "more than 0 with storage.cache, and 0 without"
        require(is_sized, "storage.cache_mib", self.cache_mib, wanted)
        in_flight = self.reads_in_flight
        require(
            in_flight is None or 1 <= in_flight <= MAX_READS_IN_FLIGHT,
            "storage.reads_in_flight",
            in_flight,
            f"null or 1 to {MAX_READS_IN_FLIGHT}, a thread each",
        )


@dataclass(kw_only=True, slots=True)
class ChangingStorageConfig(StorageConfig):
    """Storage that others use too: its bandwidth changes with time."""

    changes_s: list[float] = field(default_factory=list)
    """Seconds since the first read at which it changes."""
    shares: list[float] = field(default_factory=list)
    """Shares of the bandwidth that hold from each of `changes_s` on."""

    def __post_init__(self) -> None:
        StorageConfig.__post_init__(self)
        rising = all(a < b for a, b in pairwise([0.0, *self.changes_s, math.inf]))
        require(rising, "storage.changes_s", self.changes_s, "rising seconds above 0")
        wanted = f"as many shares in (0, 1] as there are storage.changes_s={self.changes_s}"
        fits = len(self.shares) == len(self.changes_s) and all(0 < share <= 1 for share in self.shares)
        require(fits, "storage.shares", self.shares, wanted)
        limit = self.bandwidth_mib_per_s
        wanted = "a rate, of which storage.shares are shares"
        require(limit is not None or not self.shares, "storage.bandwidth_mib_per_s", limit, wanted)


STORAGE_SCHEMAS: dict[str, type[StorageConfig]] = {"changing": ChangingStorageConfig}
