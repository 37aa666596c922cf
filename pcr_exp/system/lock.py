"""One encoder per folder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pcr_exp.errors import RecordError, RunError
from pcr_exp.system.atomic import explain_os_error

_LOCK_FILE = ".encode.lock"


@contextmanager
def encode_lock(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the kernel lets go when the process ends, however it ends.

    Raises:
        RecordError: another process holds it; the message has its pid.
        StorageError: the folder cannot be written to.
    """
    path = folder / _LOCK_FILE
    descriptor = _acquire(path)
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise explain_os_error(error, path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
            os.close(descriptor)
            raise RecordError(
                f"{path.parent} is being encoded by another process (pid {pid}). Wait for it to end, then "
                "run this again: it will find the records done."
            ) from None
        # The last holder removes the file: a lock on a removed file would exclude nobody.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


_held: set[int] = set()


class RunInUseError(RunError):
    """A live process holds the run's directory."""


def _let_go_in_child() -> None:
    # A forked decode worker that outlives a killed run must not keep the run's lock.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def hold(path: Path) -> Iterator[str | None]:
    """Hold the lock file `path`; the kernel lets go when this process ends, however it ends.

    Yields:
        The last holder, such as `process 123 on host`, if it died holding the lock; else None. (Then the
        file still names it, though nobody locks it.)

    Raises:
        RunInUseError: a live process holds it; the message names its pid and host.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInUseError(
                f"{path.parent} is in use by {_holder(descriptor) or 'a process that is just starting'}. "
                "Wait for it to end or stop it; to run the same configuration twice, give another runs_root."
            ) from None
        dead_holder = _holder(descriptor) or None
        _write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        _held.add(descriptor)
        try:
            yield dead_holder
        finally:
            _held.discard(descriptor)
            # The file stays: a lock on a removed file would exclude nobody.
            _write(descriptor, "")
            # Said aloud: closing alone would wait for a child that has not yet closed its copy.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 4096, 0).decode(errors="replace")
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return text.strip() and "an unknown process"


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
