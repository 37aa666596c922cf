"""One process per run directory."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pcr_exp.errors import RunError

log = logging.getLogger(__name__)

_held: set[int] = set()


def _let_go_in_child() -> None:
    # A forked decode worker that outlives a killed run must not keep the run's lock.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; the kernel lets go when this process ends, however it ends.

    A file that still names a holder, but is locked by nobody, belongs to a process that died: it is taken
    over and the log says so.

    Raises:
        RunError: a live process holds it; the message names its pid and host.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{path.parent} is in use by {_holder(descriptor) or 'a process that is just starting'}. "
                "Wait for it to end or stop it; to run the same configuration twice, give another runs_root."
            ) from None
        if dead := _holder(descriptor):
            log.warning("%s: the last holder, %s, ended without letting go; taking over", path, dead)
        _write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        _held.add(descriptor)
        try:
            yield
        finally:
            _held.discard(descriptor)
            # The file stays: a lock on a removed file would exclude nobody.
            _write(descriptor, "")
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
