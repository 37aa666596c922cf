"""What waits for backward in a run's updates, looked at every so often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pcr_exp.activations.count import LiveBytes


class KeptBytes:
    """Bytes of storages that forward passes left for backward, each storage once: mean and largest look.

    Every `interval` updates one is looked at, the first among them: looking takes some tens of microseconds
    per operation. Whatever the forward pass made and the loss still needs is counted, compressed or not; the
    model's parameters were there before, and are not.
    """

    def __init__(self, interval: int) -> None:
        """Look at the updates that `interval` divides."""
        self._interval = interval
        self._num_looks = 0
        self._total = 0
        self._max = 0

    @contextmanager
    def look(self, step: int) -> Iterator[None]:
        """Around the forward pass of update `step`, counted from 0, up to its loss."""
        if step % self._interval:
            yield
            return
        with LiveBytes() as live:
            yield
        self._num_looks += 1
        self._total += live.num_bytes
        self._max = max(self._max, live.num_bytes)

    def columns(self) -> dict[str, float | int | None]:
        """The columns of a row: over all looks so far, None before the first."""
        looked = self._num_looks > 0
        return {
            "kept_bytes_mean": self._total / self._num_looks if looked else None,
            "kept_bytes_max": self._max if looked else None,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"num_looks": self._num_looks, "total": self._total, "max": self._max}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; a checkpoint from before anybody looked has none, and counting begins."""
        self._num_looks = state.get("num_looks", 0)
        self._total = state.get("total", 0)
        self._max = state.get("max", 0)
