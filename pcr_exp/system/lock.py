"""One process at a time in a folder. The kernel releases the lock when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from pcr_exp.errors import PcrExpError
from pcr_exp.system.atomic import explain_os_error, write_atomic
from pcr_exp.system.own_folder import shared_folder

HOLDER_SUFFIX = ".holder"
HOST_LOCK = "pcr_exp.exclusive"
_TIMEOUT_S = 0.1
"""A holder deletes the lock file when it leaves, so a process that had already opened it must try again."""


class _InUseError(PcrExpError):
    """Another process holds the lock; the message names it."""


@contextmanager
def hold(path: Path, in_use: Callable[[str], PcrExpError]) -> Iterator[str | None]:
    """Hold the lock file `path`, which is made here and removed at the end.

    A file next to it (`<path>.holder`) names the holder. A process that is killed leaves both files, but not
    the lock, so the next holder can tell. Forked children never hold it.

    Args:
        path: Path in a folder that exists.
        in_use: Makes the error to raise if a live process holds it, from a description of that process.

    Yields:
        The last holder, such as `process 123 on host`, if it died holding the lock; else None.

    Raises:
        PcrExpError: the error from `in_use`.
        StorageError: the file system has no locks, or the folder is not writable.
    """
    beside = path.with_name(path.name + HOLDER_SUFFIX)
    # A lock that is only a file would outlive a killed holder, so without real locks this fails.
    lock = FileLock(path, timeout=_TIMEOUT_S, poll_interval=0.02, thread_local=False, fallback_to_soft=False)
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


@contextmanager
def hold_when_free(path: Path, waits_for: Callable[[str], object], *, poll_s: float = 1.0) -> Iterator[None]:
    """Hold the lock file `path` as `hold` does, after waiting for its release; Ctrl-C ends the wait.

    Args:
        path: Path in a folder that exists.
        waits_for: Called before waiting with the process that holds it, and again if another one does.
        poll_s: Seconds between two tries.

    Raises:
        StorageError: the file system has no locks, or the folder is not writable.
    """
    told = ""
    while True:
        with ExitStack() as held:
            try:
                held.enter_context(hold(path, _InUseError))
            except _InUseError as error:
                if told != str(error):
                    waits_for(str(error))
                told = str(error)
            else:
                yield
                return
        time.sleep(poll_s)


@contextmanager
def hold_host(
    waits_for: Callable[[str], object], *, folder: Path | None = None, poll_s: float = 1.0
) -> Iterator[None]:
    """Hold the user's exclusive lock of this host, after waiting until it is free.

    It is for work that needs the machine to itself. Other users have locks of their own, and containers that
    do not share the folder do not see each other.

    Args:
        waits_for: Called before waiting with the process that holds it.
        folder: Folder of the lock; by default one that all of the user's processes on the host share.
        poll_s: Seconds between two tries.

    Raises:
        StorageError: the folder is not writable, or another user has put something in its place.
    """
    with hold_when_free((folder or shared_folder()) / HOST_LOCK, waits_for, poll_s=poll_s):
        yield


def is_held(path: Path) -> bool:
    """Return whether a live process holds a lock file, also another user's; a killed one's file is free."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # on NFS, an exclusive one wants write access
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class Holder(NamedTuple):
    """The process that holds a lock, or held it when it died."""

    pid: int
    host: str


def holder_of(path: Path) -> Holder | None:
    """Return the holder of a lock file, from the file next to it; None if that does not name one."""
    try:
        return _read_holder(path.with_name(path.name + HOLDER_SUFFIX))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_holder(beside: Path) -> Holder:
    holder = json.loads(beside.read_text())
    return Holder(int(holder["pid"]), str(holder["host"]))


def _holder(beside: Path) -> str | None:
    """Describe the process that the file names; None if there is no file."""
    try:
        holder = _read_holder(beside)
        return f"process {holder.pid} on {holder.host}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"
