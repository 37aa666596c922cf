"""One process per run directory."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pcr_exp.errors import RunError

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
