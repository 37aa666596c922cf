"""How fast processes reach each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pcr_exp.config.check import require


@dataclass(kw_only=True, slots=True)
class NetworkConfig:
    """The link of each process to all others, the same in both directions at once. null means no limit."""

    name: str = "unlimited"
    bandwidth_mbit_per_s: float | None = None
    """Millions of bits per second, as networks are sold."""
    latency_ms: float = 0.0

    def __post_init__(self) -> None:
        rate = self.bandwidth_mbit_per_s
        wanted = "a rate above 0, or null for no limit"
        require(rate is None or rate > 0, "network.bandwidth_mbit_per_s", rate, wanted)
        require(0 <= self.latency_ms < math.inf, "network.latency_ms", self.latency_ms, "0 or more")
