"""Counts a storage's requests, their bytes and the time they take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from pcr_exp.storage.protocol import Counts, Range, Storage, Wrapped


class CountingStorage(Wrapped):
    """Counts the reads that pass through it. Failed reads and size queries are not counted."""

    def __init__(self, inner: Storage, now: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(inner)
        self.num_reads = 0
        self.bytes_read = 0
        self.busy_s = 0.0
        """Seconds with at least one read in flight, up to the end of the last. bytes_read / busy_s is the
        rate at which the storage supplies bytes on demand."""
        self._now = now
        self._lock = threading.Lock()
        self._num_in_flight = 0
        self._counted_until_s = 0.0

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Forward to the inner storage, and count."""
        return self._counted(1, lambda: [self.inner.read(path, offset, length)])[0]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Forward to the inner storage, and count."""
        return self._counted(len(ranges), lambda: self.inner.read_many(ranges))

    def _counted(self, num_reads: int, read: Callable[[], list[bytes]]) -> list[bytes]:
        with self._lock:
            started_s = self._now()
            if self._num_in_flight == 0:
                self._counted_until_s = started_s
            self._num_in_flight += num_reads
        try:
            found = read()
        except BaseException:
            with self._lock:
                self._num_in_flight -= num_reads
            raise
        with self._lock:
            ended_s = self._now()
            self._num_in_flight -= num_reads
            self.num_reads += num_reads
            self.bytes_read += sum(map(len, found))
            self.busy_s += ended_s - self._counted_until_s
            self._counted_until_s = ended_s
        return found

    def counts(self) -> Counts:
        """Return these counters plus those of the inner storage."""
        with self._lock:
            own = Counts(num_requests=self.num_reads, bytes_read=self.bytes_read, busy_s=self.busy_s)
        return own + self.inner.counts()
