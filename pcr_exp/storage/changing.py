"""Throttled storage whose bandwidth changes with time, as on a cluster that others use too."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from pcr_exp.storage import RangeReader
from pcr_exp.storage.throttle import Throttle, ThrottledStorage


def share_at(elapsed_s: float, changes_s: Sequence[float], shares: Sequence[float]) -> float:
    """Share of the bandwidth after some seconds: that of the last change, 1 before the first."""
    return [1.0, *shares][bisect_right(changes_s, elapsed_s)]


class ChangingStorage(ThrottledStorage):
    """A read at a share s of the bandwidth is charged like one of 1 / s times the bytes.

    Time counts from the first read of this process: a resumed run begins anew, and every process of a host
    has its own beginning.
    """

    def __init__(
        self,
        inner: RangeReader,
        throttle: Throttle,
        changes_s: Sequence[float],
        shares: Sequence[float],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(inner, throttle)
        self._changes_s = changes_s
        self._shares = shares
        self._now = now
        self._lock = threading.Lock()
        self._began_s: float | None = None

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's `read`, at the bandwidth of the moment that it begins.

        Raises:
            ReadCancelledError: `interruptible`'s event was set meanwhile.
        """
        due_ns = self.throttle.reserve(self._charged(length))
        data = self.inner.read(path, offset, length)
        self.throttle.wait_until(due_ns)
        return data

    def _charged(self, length: int) -> int:
        return round(length / self._share())

    def _share(self) -> float:
        with self._lock:
            now_s = self._now()
            if self._began_s is None:
                self._began_s = now_s
        return share_at(now_s - self._began_s, self._changes_s, self._shares)
