"""How the processes of a run tell each other their gradients, and over which link."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pcr_exp.config.check import require
from pcr_exp.config.components import component_of, names


@dataclass(kw_only=True, slots=True)
class NetworkConfig:
    """The link of each process to all others, the same in both directions at once. null means no limit."""

    name: str = "unlimited"
    """What figures call this network."""
    bandwidth_mbit_per_s: float | None = None
    """Millions of bits per second, as networks are sold."""
    latency_ms: float = 0.0
    """Milliseconds from a message to its first byte."""

    def __post_init__(self) -> None:
        rate = self.bandwidth_mbit_per_s
        wanted = "a rate above 0, or null for no limit"
        require(rate is None or rate > 0, "network.bandwidth_mbit_per_s", rate, wanted)
        require(0 <= self.latency_ms < math.inf, "network.latency_ms", self.latency_ms, "0 or more")


@dataclass(kw_only=True, slots=True)
class GradientsConfig:
    """What travels between processes, and which way; a codec that has settings of its own adds them."""

    name: str = "none"
    """The codec, as it is registered."""
    mode: str = "ddp"
    """`ddp`: every process sends its gradients to all, all take the same step. `server`: processes push
    gradients to a parameter server (the first of them), which pulls them along by sending model changes."""
    min_values: int = 256
    """Smaller tensors are sent as float32, as are all with fewer than two dimensions (norms, biases)."""

    def __post_init__(self) -> None:
        known = names("gradients")
        require(self.name in known, "gradients.name", self.name, ", ".join(known))
        component_of("gradients", self)  # refuses a name with the settings of another codec
        require(self.mode in ("ddp", "server"), "gradients.mode", self.mode, "ddp or server")
        require(self.min_values >= 0, "gradients.min_values", self.min_values, "0 or more")
