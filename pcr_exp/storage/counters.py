"""What storage delivered: requests, bytes and the time they took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from pcr_exp.storage.protocol import RangeReader


class CountingStorage:
    """Counts what passes through it. A read that fails is not counted."""

    def __init__(self, inner: RangeReader, now: Callable[[], float] = time.perf_counter) -> None:
        self.inner = inner
        self.is_remote = getattr(inner, "is_remote", False)
        self.num_reads = 0
        self.bytes_read = 0
        self.read_s = 0.0
        """Summed over threads: with n reads in flight it grows n times as fast as the clock."""
        self.busy_s = 0.0
        """Seconds with reads in flight, however many, up to the end of the last: bytes_read / busy_s is what
        the storage supplies when asked."""
        self._now = now
        self._lock = threading.Lock()
        self._num_in_flight = 0
        self._counted_until_s = 0.0

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's `read`."""
        with self._lock:
            started_s = self._now()
            if self._num_in_flight == 0:
                self._counted_until_s = started_s
            self._num_in_flight += 1
        try:
            data = self.inner.read(path, offset, length)
        except BaseException:
            with self._lock:
                self._num_in_flight -= 1
            raise
        with self._lock:
            ended_s = self._now()
            self._num_in_flight -= 1
            self.num_reads += 1
            self.bytes_read += len(data)
            self.read_s += ended_s - started_s
            self.busy_s += ended_s - self._counted_until_s
            self._counted_until_s = ended_s
        return data

    @property
    def reads_many(self) -> bool:
        """Whether `read_many` does more than read one after the other."""
        return getattr(self.inner, "reads_many", False)

    def read_many(self, places: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """As the inner storage's `read_many`: for each (path, offset, length) what `read` gives."""
        with self._lock:
            started_s = self._now()
            if self._num_in_flight == 0:
                self._counted_until_s = started_s
            self._num_in_flight += len(places)
        try:
            found: list[bytes] = self.inner.read_many(places)  # type: ignore[attr-defined]
        except BaseException:
            with self._lock:
                self._num_in_flight -= len(places)
            raise
        with self._lock:
            ended_s = self._now()
            self._num_in_flight -= len(places)
            self.num_reads += len(places)
            self.bytes_read += sum(map(len, found))
            self.read_s += len(places) * (ended_s - started_s)
            self.busy_s += ended_s - self._counted_until_s
            self._counted_until_s = ended_s
        return found

    def supplied(self) -> tuple[int, float]:
        """`bytes_read` and the `busy_s` that they took."""
        with self._lock:
            return self.bytes_read, self.busy_s

    def requests(self) -> tuple[int, int]:
        """(requests, of which made again): each read is one, and each time that it was made again another."""
        with self._lock:
            num_reads = self.num_reads
        return num_reads + self.num_retries, self.num_retries

    @property
    def num_retries(self) -> int:
        """Requests that the storage made again because they failed on their way; 0 where it makes none."""
        return getattr(self.inner, "num_retries", 0)

    def size(self, path: str) -> int:
        """As the inner storage's `size`; not counted, it delivers no bytes of the file."""
        return self.inner.size(path)

    def __str__(self) -> str:
        return str(self.inner)
