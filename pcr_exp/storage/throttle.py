"""Makes fast storage behave like slow storage: bandwidth, latency, seeks and requests per second.

Requests are scheduled on a virtual pipe that all processes of the host share. A request of n bytes that
arrives at `now` takes the next request slot. Its first byte comes one latency later. Its bytes then pass
through the pipe at the given bandwidth, one request after the other:

    slot  = max(slot_free, now)                   slot_free = slot + 1 / requests_per_s
    start = max(pipe_free, slot + latency)        pipe_free = done = start + seek + n / bandwidth

So latencies of requests in flight overlap, as on a network, and unused bandwidth is not saved up for bursts.
Seeks do not overlap: one head moves for one request at a time, and is busy until that request's bytes have
passed. Deadlines are absolute, so rounding and oversleeping do not accumulate.

Every request costs a full seek, in order of arrival. A real disk needs no seek for a read that begins where
the last one ended, and it sorts waiting requests. Neither is modelled. Each request here reads one prefix of
one record file, in shuffled order, so none begins where another ended. `seek` should be the mean over such
requests.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.storage.bucket import Bucket, Limits, new_bucket_path, remove_own
from pcr_exp.storage.protocol import Range, Storage, Wrapped
from pcr_exp.system import MIB

_NS_PER_S = 1_000_000_000

_this_thread = threading.local()


class ReadCancelledError(StorageError):
    """A waiting read was cancelled because `interruptible`'s event was set."""


@contextmanager
def interruptible(event: threading.Event) -> Iterator[None]:
    """End this thread's reads that wait for the throttle or a retry as soon as `event` is set.

    They raise ReadCancelledError.
    """
    _this_thread.cancel = event
    try:
        yield
    finally:
        _this_thread.cancel = None


def _wait(seconds: float, cancel: threading.Event | None) -> None:
    if cancel is None:
        time.sleep(seconds)
    else:
        cancel.wait(seconds)


def sleep(seconds: float) -> None:
    """Sleep, unless this thread's reads are cancelled.

    Raises:
        ReadCancelledError: this thread's `interruptible` event was set.
    """
    cancel: threading.Event | None = getattr(_this_thread, "cancel", None)
    _wait(seconds, cancel)
    if cancel is not None and cancel.is_set():
        raise ReadCancelledError("the read was cancelled while it waited to be tried again.")


class Throttle:
    """A bucket and its clock. Picklable: a copy in another process shares the same bucket.

    The state is in a file of 72 bytes. It is the one passed to `create` (ranks of a host pass the same), or a
    new one in the user's own folder in /dev/shm (else the temp folder). The process that made the file
    removes it when its Throttle is dropped or the process ends. Others that have it open are not affected.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float, threading.Event | None], None] = _wait,
    ) -> None:
        """`clock` returns nanoseconds; `wait` sleeps for some seconds or until the event is set."""
        self._bucket = bucket
        self._clock = clock
        self._wait = wait
        self._overslept = threading.local()

    @classmethod
    def create(
        cls,
        config: StorageConfig,
        path: str | Path | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float, threading.Event | None], None] = _wait,
    ) -> Throttle:
        """Return a throttle with the config's limits: a new one, or the one at `path` (created if missing).

        Raises:
            StorageError: the throttle at `path` enforces other limits, or the file is not a throttle.
        """
        limits = Limits(
            bytes_per_s=(config.bandwidth_mib_per_s or math.inf) * MIB,
            latency_s=config.latency_ms / 1e3,
            requests_per_s=config.requests_per_s or math.inf,
            seek_s=config.seek_ms / 1e3,
        )
        file = new_bucket_path() if path is None else Path(path)
        bucket = Bucket(file, limits)
        throttle = cls(bucket, clock=clock, wait=wait)
        if bucket.created:
            weakref.finalize(throttle, remove_own, file, os.getpid())
        return throttle

    @classmethod
    def open(cls, path: str | Path) -> Throttle:
        """Open the throttle that another process made at `path`. Raises StorageError if there is none."""
        return cls(Bucket(Path(path)))

    @property
    def limits(self) -> Limits:
        """The enforced limits."""
        return self._bucket.limits

    @property
    def path(self) -> Path:
        """The file with the shared state."""
        return self._bucket.path

    def reserve(self, *num_bytes: int) -> int:
        """Schedule requests of `num_bytes` bytes that arrive now, one after the other.

        Returns when the last byte of the last request is due, in clock nanoseconds.
        """
        limits = self._bucket.limits
        # The OS may have woken this thread late after its last request, which is not the storage's fault. So
        # this request counts as made that much earlier. Waiting for the bucket's lock does not count either.
        now_ns = self._clock() - getattr(self._overslept, "ns", 0)
        with self._bucket.locked() as schedule:
            for count in num_bytes:
                slot_ns = max(schedule.slot_free_ns, now_ns)
                start_ns = max(schedule.pipe_free_ns, slot_ns + round(limits.latency_s * _NS_PER_S))
                busy_s = limits.seek_s + count / limits.bytes_per_s
                schedule.slot_free_ns = slot_ns + round(_NS_PER_S / limits.requests_per_s)
                schedule.pipe_free_ns = start_ns + round(busy_s * _NS_PER_S)
            done_ns = schedule.pipe_free_ns
        self._overslept.ns = 0
        return done_ns

    def wait_until(self, deadline_ns: int) -> None:
        """Sleep until the deadline.

        Raises:
            ReadCancelledError: this thread's `interruptible` event was set before it.
        """
        cancel: threading.Event | None = getattr(_this_thread, "cancel", None)
        waited = False
        while (left_ns := deadline_ns - self._clock()) > 0:
            if cancel is not None and cancel.is_set():
                raise ReadCancelledError("the read was cancelled while it waited for throttled storage.")
            self._wait(left_ns / _NS_PER_S, cancel)
            waited = True
        self._overslept.ns = -left_ns if waited else 0

    def __reduce__(self) -> tuple[Callable[[str], Throttle], tuple[str]]:
        return Throttle.open, (str(self.path),)


class ThrottledStorage(Wrapped):
    """Another storage, slowed to a throttle's limits. Bytes that it has cached are charged like others."""

    def __init__(self, inner: Storage, throttle: Throttle) -> None:
        super().__init__(inner)
        self.throttle = throttle
        # Ranges of a remote storage would be read one by one, not concurrently.
        self.reads_many = not inner.is_remote

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read from the inner storage. The wait for the throttle overlaps the read.

        `length` is charged whatever comes back, but a read beyond the end of the file does not wait.

        Raises:
            ReadCancelledError: `interruptible`'s event was set meanwhile.
        """
        due_ns = self.throttle.reserve(self._charged(length))
        data = self.inner.read(path, offset, length)
        if len(data) == length:  # else an error follows, which hours of waiting would only delay
            self.throttle.wait_until(due_ns)
        return data

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read all ranges, which are in flight together and due together.

        Raises:
            ReadCancelledError: `interruptible`'s event was set meanwhile.
        """
        due_ns = self.throttle.reserve(*(self._charged(length) for _, _, length in ranges))
        found = self.inner.read_many(ranges)
        self.throttle.wait_until(due_ns)
        return found

    def _charged(self, length: int) -> int:
        """Number of bytes that a read is charged for."""
        return length

    def size(self, path: str) -> int:
        """Return the inner storage's `size`, charged as a request of zero bytes, with its seek."""
        due_ns = self.throttle.reserve(0)
        size = self.inner.size(path)
        self.throttle.wait_until(due_ns)
        return size

    def __str__(self) -> str:
        return f"{self.inner}, throttled to {self.throttle.limits}"


def share_at(elapsed_s: float, changes_s: Sequence[float], shares: Sequence[float]) -> float:
    """Share of the bandwidth after `elapsed_s`: that of the last change, or 1 before the first."""
    return [1.0, *shares][bisect_right(changes_s, elapsed_s)]


class ChangingStorage(ThrottledStorage):
    """Throttled storage of changing bandwidth: at share s, a read is charged 1 / s times its bytes.

    The share is the one in effect when the read begins.
    Time counts from the first read of this process. A resumed run thus starts again, and every process of a
    host has its own start.
    """

    def __init__(
        self,
        inner: Storage,
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

    def _charged(self, length: int) -> int:
        return round(length / self._share())

    def _share(self) -> float:
        with self._lock:
            now_s = self._now()
            if self._began_s is None:
                self._began_s = now_s
        return share_at(now_s - self._began_s, self._changes_s, self._shares)
