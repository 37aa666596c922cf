"""Where the throttle's shared file lies, and whose it is: those of processes that died are removed."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "pcr-exp-throttle-"
_NAME = re.compile(re.escape(_PREFIX) + r"(\d+)-(\d+)-(\d+)-")


def new_bucket_path() -> Path:
    """An empty file for a new bucket: in /dev/shm (memory, no disk) if there is one, else the temp folder.

    Its name says which process made it, and the file goes with that process at the latest, whether or not a
    throttle was ever opened there. Files whose makers were killed are removed.
    """
    in_memory = os.access(SHARED_MEMORY, os.W_OK)
    folder = SHARED_MEMORY if in_memory else Path(tempfile.gettempdir())
    remove_ownerless(folder)
    pid = os.getpid()
    prefix = f"{_PREFIX}{pid}-{_started(pid) or 0}-{_pid_namespace()}-"
    descriptor, path = tempfile.mkstemp(prefix=prefix, dir=folder)
    os.close(descriptor)
    atexit.register(remove_own, Path(path), pid)
    return Path(path)


def remove_own(path: Path, owner: int) -> None:
    """Remove the file, but not in a forked child, which inherits what its parent does at its end."""
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


def remove_ownerless(folder: Path) -> None:
    """Remove the files of processes that have ended; never one whose owner may be alive."""
    for path in folder.glob(_PREFIX + "*"):
        named = _NAME.match(path.name)
        if named and not _may_live(*(int(number) for number in named.groups())):
            with suppress(OSError):  # another process was quicker, or it is another user's
                path.unlink()


def _may_live(pid: int, started: int, namespace: int) -> bool:
    if namespace != _pid_namespace():
        return True  # of a container that shares this folder: its processes cannot be seen from here
    if started == 0:  # a system that does not tell when processes started
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    return _started(pid) == started


def _started(pid: int) -> int | None:
    """When a living process started, in ticks since the host's start: pids are used again. None: it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # pid (name) state ppid ... starttime, the 22nd; a name may hold anything, brackets too.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
