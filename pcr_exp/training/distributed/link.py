"""A process's link to the network, as slow as configured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pcr_exp.config.network import NetworkConfig

_BYTES_PER_MBIT = 1e6 / 8


class Link:
    """Makes a sender wait as long as its bytes would take; loopback then delivers them at once.

    Every process has a link of its own, of the same bandwidth in both directions at the same time. What
    arrives at a receiver from several senders at once queues on its link: `queue` is that receiver's wait.
    """

    def __init__(
        self,
        config: NetworkConfig,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a link that is free. `now` and `sleep` are in seconds."""
        self.bytes_per_s = (config.bandwidth_mbit_per_s or math.inf) * _BYTES_PER_MBIT
        self.latency_s = config.latency_ms / 1e3
        self.waited_s = 0.0
        """Seconds that this process has waited for its link."""
        self._now = now
        self._sleep = sleep
        self._overslept_s = 0.0

    def send(self, num_bytes: int, num_hops: int = 1) -> None:
        """Wait for `num_hops` messages after each other, of `num_bytes` together, to be delivered."""
        self._wait(num_hops * self.latency_s + num_bytes / self.bytes_per_s)

    def queue(self, num_bytes: int) -> None:
        """Wait for bytes that came while the link was busy with others."""
        self._wait(num_bytes / self.bytes_per_s)

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self.waited_s += seconds
        # The scheduler woke this process late after its last wait, which is not the network's doing.
        due = self._now() + seconds - self._overslept_s
        while (left := due - self._now()) > 0:
            self._sleep(left)
        self._overslept_s = min(-left, seconds)
