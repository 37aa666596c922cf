"""One process at a time in a folder; the kernel drops the lock when its holder ends, however it ends."""

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
"""A holder removes the lock's file as it leaves. Whoever had opened it by then must try again."""


class _InUseError(PcrExpError):
    """Another process holds the lock; the message names it."""


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
    """Hold the lock file `path` as `hold` does, once whoever holds it has let it go; Ctrl-C ends the wait.

    Args:
        path: In a folder that exists.
        waits_for: Told before waiting which process holds it, and again when another one does.
        poll_s: Seconds between two tries.

    Raises:
        StorageError: the file system has no locks, or the folder cannot be written to.
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
    """Hold a user's one lock of this host, for what must have the machine to itself; wait until it is free.

    Other users have locks of their own, and containers that do not share the folder do not see each other.

    Args:
        waits_for: Told before waiting which process holds it.
        folder: Where the lock lies; by default one that all of the user's processes on the host share.
        poll_s: Seconds between two tries.

    Raises:
        StorageError: the folder cannot be written to, or another user has put something in its place.
    """
    with hold_when_free((folder or shared_folder()) / HOST_LOCK, waits_for, poll_s=poll_s):
        yield


def is_held(path: Path) -> bool:
    """Whether a live process holds a lock file; the file of one that was killed is free."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    """Who holds a lock file, as the file beside it says; None where it does not say."""
    try:
        return _read_holder(path.with_name(path.name + HOLDER_SUFFIX))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_holder(beside: Path) -> Holder:
    holder = json.loads(beside.read_text())
    return Holder(int(holder["pid"]), str(holder["host"]))


def _holder(beside: Path) -> str | None:
    """Return words for the process that the file names, or None if there is no file."""
    try:
        holder = _read_holder(beside)
        return f"process {holder.pid} on {holder.host}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"
