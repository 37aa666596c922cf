"""One encoder per folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcr_exp.errors import RecordError
from pcr_exp.records.atomic import explain_os_error

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
