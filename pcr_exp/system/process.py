"""This process: its signals, its parent, its freed memory, and an output whose reader has left.

The first signal ends training at the next update, with a checkpoint. The second one ends it at once.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopWaiting(BaseException):
    """Raised by a signal while training waits for a batch that may come late. It stops as after an update."""


class StopRequest:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._graceful = False
        self._waiting = False
        self._pid = os.getpid()

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._signal is not None

    def agree(self, asked: bool) -> bool:
        """Return `requested`, which becomes true if another process of the run was asked to end."""
        if asked and self._signal is None:
            self._signal = signal.SIGTERM
        return self.requested

    @contextmanager
    def graceful(self) -> Iterator[None]:
        """Within this context, the first signal only sets `requested`; it takes effect at the end."""
        self._graceful = True
        try:
            yield
        finally:
            self._graceful = False
        self.raise_if_requested()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this context, a signal does not wait for an update to end, as the next may be far off.

        Raises:
            StopWaiting: a signal arrives, or arrived after the last update ended.
        """
        if self.requested:
            raise StopWaiting
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def raise_if_requested(self) -> None:
        """Raise what the signal would have raised: KeyboardInterrupt, or SystemExit(143) for SIGTERM."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal is not None:
            raise SystemExit(128 + self._signal)

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        if os.getpid() != self._pid:
            return  # a forked decode worker; the training process decides
        first = self._signal is None
        self._signal = number
        if first and self._graceful and self._waiting:
            log.warning("asked to stop: saving a checkpoint (ask again to stop at once)")
            raise StopWaiting
        if first and self._graceful:
            log.warning("asked to stop: saving a checkpoint after this update (ask again to stop at once)")
        else:
            self.raise_if_requested()


@contextmanager
def handled_signals() -> Iterator[StopRequest]:
    """Handle SIGINT and SIGTERM. Only a main thread can; elsewhere, no request ever comes.

    An ignored SIGINT stays ignored. Shells start background processes this way, and a Ctrl-C for the
    foreground may reach them as well.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    wanted = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, request.handle) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


POLL_S = 0.5

TIMEOUT_S = 60.0
"""Seconds that a process gets to end, since it may save a checkpoint first."""


def end_with_parent(parent: int, end: Callable[[], None] | None = None) -> None:
    """Call `end` soon after `parent`, the process that started this one, has ended.

    Args:
        parent: Its process id, found by the parent itself, as this process may already be an orphan.
        end: By default, this process ends at once. It has nothing to save, and what it could wait for (a
            queue's other side, a lock) may never come.
    """
    watch = threading.Thread(
        target=_watch, args=(parent, end or _end_at_once), name="pcr-exp-parent", daemon=True
    )
    watch.start()


def _watch(parent: int, end: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    end()


def _end_at_once() -> None:
    os._exit(1)


def terminate() -> None:
    """End this process by SIGTERM, which a training run handles gracefully; after a minute, at once."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(TIMEOUT_S)
    os._exit(128 + signal.SIGTERM)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h

_KEPT_BYTES = 2**26


def keep_freed_memory() -> None:
    """Let this process keep up to 64 MiB of freed memory, if its C library is glibc.

    By default, glibc returns megabytes at once, and gets them again, page by page and cleared, for the
    coefficients and pixels of the next image.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


class _ReaderMayLeave:
    """A text stream that drops its output once its reader has left, and otherwise acts as the stream itself.

    Work does not end with its reader: a run continues, and its rows are in files.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # includes what is still in the buffer
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def leaving_readers() -> Iterator[None]:
    """Ignore a reader of stdout who has left, within this context and at its end."""
    before = sys.stdout
    watched = _ReaderMayLeave(before)
    sys.stdout = watched
    try:
        yield
    finally:
        watched.flush()
        if sys.stdout is watched:
            sys.stdout = before
