"""What storage delivered: requests, bytes and the time they took."""

from __future__ import annotations

import threading
import time

from pcr_exp.records.reader import RangeReader


class CountingStorage:
    """Counts what passes through it. A read that fails is not counted."""

    def __init__(self, inner: RangeReader) -> None:
        self.inner = inner
        self.num_reads = 0
        self.bytes_read = 0
        self.read_s = 0.0
        """Summed over threads: with n reads in flight it grows n times as fast as the clock."""
        self._lock = threading.Lock()

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's `read`."""
        started_s = time.perf_counter()
        data = self.inner.read(path, offset, length)
        took_s = time.perf_counter() - started_s
        with self._lock:
            self.num_reads += 1
            self.bytes_read += len(data)
            self.read_s += took_s
        return data

    def size(self, path: str) -> int:
        """As the inner storage's `size`; not counted, it delivers no bytes of the file."""
        return self.inner.size(path)

    def __str__(self) -> str:
        return str(self.inner)
