"""How fast bytes come."""

from __future__ import annotations

import math
from dataclasses import dataclass

from omegaconf import MISSING

from pcr_exp.config.check import require


@dataclass(kw_only=True, slots=True)
class StorageConfig:
    """How fast bytes come. null means no limit."""

    name: str = MISSING
    bandwidth_mib_per_s: float | None = None
    latency_ms: float = 0.0
    requests_per_s: float | None = None
    cold_cache: bool = False
    """Drop the training records from the page cache before training, as far as the kernel allows; the log and
    the manifest say what stayed. What an epoch has read, later ones may find there."""

    def __post_init__(self) -> None:
        for key in ("bandwidth_mib_per_s", "requests_per_s"):
            value = getattr(self, key)
            require(
                value is None or value > 0, f"storage.{key}", value, "a rate above 0, or null for no limit"
            )
        require(0 <= self.latency_ms < math.inf, "storage.latency_ms", self.latency_ms, "0 or more")
