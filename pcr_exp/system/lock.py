"""One process at a time in a folder; the kernel drops the lock when its holder ends, however it ends."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pcr_exp.errors import PcrExpError
from pcr_exp.system.atomic import explain_os_error, write_atomic

HOLDER_SUFFIX = ".holder"
_PATIENCE_S = 0.1
"""A holder removes the lock's file as it leaves. Whoever had opened it by then must try again."""


@contextmanager
def hold(path: Path, in_use: Callable[[str], PcrExpError]) -> Iterator[str | None]:
    """Hold the lock file `path`, made here; it is removed at the end.

    A file beside it (`<path>.holder`) says who holds it. A process that is killed leaves both files, but not
    the lock, so the next holder can tell. Forked children never hold it.

    Args:
        path: In a folder that exists.
        in_use: Makes the error to raise while a live process holds it, from words for that process.

    Yields:
        The last holder, such as `process 123 on host`, if it died holding the lock; else None.

    Raises:
        PcrExpError: as `in_use` makes it.
        StorageError: the file system has no locks, or the folder cannot be written to.
    """
    beside = path.with_name(path.name + HOLDER_SUFFIX)
    # A lock that only exists as a file would outlive a killed holder: where there is no other, this fails.
    lock = FileLock(path, timeout=_PATIENCE_S, poll_interval=0.02, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise in_use(_holder(beside) or "a process that is just starting") from None
    except OSError as error:
        raise explain_os_error(error, path) from error
    try:
        dead_holder = _holder(beside)
        write_atomic(beside, [json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()])
        try:
            yield dead_holder
        finally:
            beside.unlink(missing_ok=True)
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _holder(beside: Path) -> str | None:
    """Return words for the process that the file names, or None if there is no file."""
    try:
        holder = json.loads(beside.read_text())
        return f"process {holder['pid']} on {holder['host']}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"
