"""The schedule that all processes of a host share: a few numbers in a small memory-mapped file.

A kernel file lock (`flock`) guards it. The kernel releases the lock when its holder dies, so a killed process
never blocks the others.

The file's name identifies its owner (`new_bucket_path`), and files of dead processes are removed.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import functools
import math
import mmap
import os
import re
import stat
import struct
import tempfile
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pcr_exp.errors import StorageError
from pcr_exp.system import MIB
from pcr_exp.system.own_folder import shared_folder

_PREFIX = "pcr-exp-throttle-"
_NAME = re.compile(re.escape(_PREFIX) + r"(\d+)-(\d+)-(\d+)-")


_MAGIC = b"PCRBKT03"
_LIMITS = struct.Struct("<8s16sdddd")
_SCHEDULE = struct.Struct("<qq")
_NUM_BYTES = _LIMITS.size + _SCHEDULE.size


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a bucket enforces. An infinite rate is no limit."""

    bytes_per_s: float
    latency_s: float
    requests_per_s: float
    seek_s: float = 0.0

    def __str__(self) -> str:
        limits = [f"{self.seek_s * 1e3:g} ms per seek"] if self.seek_s else []
        if self.latency_s or not limits:
            limits.insert(0, f"{self.latency_s * 1e3:g} ms per request")
        if math.isfinite(self.bytes_per_s):
            limits.insert(0, f"{self.bytes_per_s / MIB:g} MiB/s")
        if math.isfinite(self.requests_per_s):
            limits.append(f"{self.requests_per_s:g} requests/s")
        return ", ".join(limits)


@dataclass(slots=True)
class Schedule:
    """When the pipe (or the head) and the next request slot are free: ns of the host's CLOCK_MONOTONIC."""

    pipe_free_ns: int
    slot_free_ns: int


class Bucket:
    """A shared schedule in a file. `with bucket.locked() as schedule:` reads it and writes it back."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        """Open the bucket at `path`; with `limits`, create it if it is missing.

        Raises:
            StorageError: there is no bucket (and no limits were given), or it enforces other limits.
        """
        self.path = path
        self._attach(create=limits is not None)
        with self._exclusive():
            self.created = limits is not None and self._is_new()
            if limits is not None and self.created:
                self._write(limits)
            self.limits = self._read_limits()
        if limits is not None and limits != self.limits:
            raise StorageError(
                f"the throttle at {path} enforces {self.limits}; wanted {limits}. Processes that share a "
                "throttle need the same storage settings; delete the file if no run uses it any more."
            )
        _BUCKETS.add(self)

    @contextmanager
    def locked(self) -> Iterator[Schedule]:
        """Hold the schedule exclusively among all threads and processes. Changes are stored at the end."""
        with self._exclusive():
            schedule = Schedule(*_SCHEDULE.unpack_from(self._map, _LIMITS.size))
            yield schedule
            _SCHEDULE.pack_into(self._map, _LIMITS.size, schedule.pipe_free_ns, schedule.slot_free_ns)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        # flock excludes other open file descriptions; the threads of this process share one.
        with self._lock:
            if self._forked:
                self._attach(create=False)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _attach(self, *, create: bool) -> None:
        try:
            self._descriptor = open_own(self.path, create=create)
        except OSError as error:
            raise StorageError(f"cannot open a throttle at {self.path}: {error.strerror}.") from error
        if create and os.fstat(self._descriptor).st_size == 0:
            # Zeros. Two simultaneous creators do the same, and the lock decides who writes the limits.
            os.truncate(self._descriptor, _NUM_BYTES)
        if os.fstat(self._descriptor).st_size != _NUM_BYTES:
            os.close(self._descriptor)
            raise StorageError(f"{self.path} is not a throttle of this package.")
        self._map = mmap.mmap(self._descriptor, _NUM_BYTES)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._lock = getattr(self, "_lock", None) or threading.Lock()
        self._forked = False

    def _is_new(self) -> bool:
        magic, boot, *_ = _LIMITS.unpack_from(self._map, 0)
        # Times count from the host's boot, so a schedule left over from before it may be days ahead.
        return magic == bytes(len(_MAGIC)) or (magic == _MAGIC and boot != _boot_id())

    def _write(self, limits: Limits) -> None:
        _SCHEDULE.pack_into(self._map, _LIMITS.size, 0, 0)
        fields = (limits.bytes_per_s, limits.latency_s, limits.requests_per_s, limits.seek_s)
        _LIMITS.pack_into(self._map, 0, _MAGIC, _boot_id(), *fields)

    def _read_limits(self) -> Limits:
        magic, _, *fields = _LIMITS.unpack_from(self._map, 0)
        if magic != _MAGIC:
            raise StorageError(f"{self.path} is not a throttle of this package.")
        return Limits(*fields)

    def after_fork(self) -> None:
        """Make a child open the file itself, as it shares the parent's file description and so its flock."""
        self._lock = threading.Lock()
        self._forked = True


_BUCKETS: weakref.WeakSet[Bucket] = weakref.WeakSet()


def _after_fork() -> None:
    for bucket in list(_BUCKETS):
        bucket.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _boot_id() -> bytes:
    """16 bytes that identify this boot of the host; zeros if the system has no such identifier."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):
        return bytes(16)


def open_own(path: Path, *, create: bool) -> int:
    """Open a file of this user's, which is not a symbolic link, and return its descriptor.

    Raises:
        OSError: it cannot be opened, is another user's, or is not a regular file.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise OSError(errno.EPERM, "it belongs to another user, or is not a regular file", str(path))
    return descriptor


def new_bucket_path() -> Path:
    """Create an empty file for a new bucket in this user's `shared_folder`.

    Its name identifies this process. The file is removed when the process ends, at the latest, whether or not
    a throttle was ever opened there. Files of killed processes are removed as well.
    """
    folder = shared_folder()
    remove_ownerless(folder)
    pid = os.getpid()
    prefix = f"{_PREFIX}{pid}-{_started(pid) or 0}-{_pid_namespace()}-"
    descriptor, path = tempfile.mkstemp(prefix=prefix, dir=folder)
    os.close(descriptor)
    atexit.register(remove_own, Path(path), pid)
    return Path(path)


def remove_own(path: Path, owner: int) -> None:
    """Remove the file, but not in a forked child, which inherits its parent's exit handlers."""
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


def remove_ownerless(folder: Path) -> None:
    """Remove the files of processes that have ended, but never one whose owner may be alive."""
    for path in folder.glob(_PREFIX + "*"):
        named = _NAME.match(path.name)
        if named and not _may_live(*(int(number) for number in named.groups())):
            with suppress(OSError):  # another process was quicker, or it is another user's
                path.unlink()


def _may_live(pid: int, started: int, namespace: int) -> bool:
    if namespace != _pid_namespace():
        return True  # from a container that shares this folder: its processes are not visible here
    if started == 0:  # a system without start times of processes
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    return _started(pid) == started


def _started(pid: int) -> int | None:
    """Start time of a living process in ticks since boot (pids are reused); None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # pid (name) state ppid ... starttime, the 22nd field. A name may contain anything, even brackets.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
