"""The machine: how much of the CPU others took, and which files are in the page cache.

The kernel counts the work of each CPU and of each process. Whatever the run's CPUs did beyond the run's own
processes was done by others: other programs on this machine, and other virtual machines on its host (steal).
If a control group limits the run to the time of some cores, others in that group take from it as well; the
larger of both shares counts. Time in interrupts belongs to nobody, as it also serves the run's own reads.
GPUs are not considered.

A file's owner may query and drop its cached pages without privileges. This works on Linux only: elsewhere the
state is unknown, and drops are refused.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

_BUSY = ("user", "nice", "system", "steal")

_ALL = (*_BUSY, "idle", "iowait", "irq", "softirq")

_SHORTEST_S = 1.0
"""The kernel counts in hundredths of a second, so a share over less time than this would be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """Seconds counted so far. Only differences between two readings are meaningful."""

    own_s: float
    """Spent by the run's processes, including those that have ended."""
    busy_s: float
    """Spent on any process by the run's CPUs, or taken by another virtual machine."""
    total_s: float
    """Available on these CPUs: elapsed time multiplied by their number."""
    group_s: float | None = None
    """Spent in the control group that limits the run; None if none does."""
    group_share: float = 1.0
    """Limit of that group, as a share of `total_s`."""


def others_share(before: CpuReading, after: CpuReading) -> float | None:
    """Return the share (0 to 1) of the run's possible CPU time that others took; None: no time passed.

    Args:
        before: Reading at the start of the interval.
        after: Reading at its end, for the same processes.
    """
    total_s, own_s = after.total_s - before.total_s, after.own_s - before.own_s
    if total_s <= 0:
        return None
    shares = [(after.busy_s - before.busy_s - own_s) / total_s]
    if before.group_s is not None and after.group_s is not None:
        shares.append((after.group_s - before.group_s - own_s) / (total_s * after.group_share))
    return min(1.0, max(0.0, *shares))


def read_cpu(roots: Sequence[int], groups: Path = Path("/sys/fs/cgroup")) -> CpuReading | None:
    """Read the kernel's counters; None on systems other than Linux, or if the run's CPUs are not among them.

    Args:
        roots: Process ids. These processes and all their descendants are the run's own. An ended process
            counts only through its parent.
        groups: Mount point of control groups (version 2).
    """
    if not psutil.LINUX:
        return None
    allowed = _own_cpus()
    if not allowed:
        return None
    group = _limiting_group(groups)
    return CpuReading(
        own_s=sum(_spent_s(process) for process in _with_children(roots)),
        busy_s=sum(getattr(cpu, kind) for cpu in allowed for kind in _BUSY),
        total_s=sum(getattr(cpu, kind) for cpu in allowed for kind in _ALL),
        group_s=group[1] if group else None,
        group_share=min(1.0, group[0] / len(allowed)) if group else 1.0,
    )


def _own_cpus() -> list[Any]:
    """Return the counters of the CPUs that this process may use; psutil lists those that are online."""
    lines = Path(psutil.PROCFS_PATH, "stat").read_text().splitlines()
    numbers = [int(found[1]) for line in lines if (found := re.match(r"cpu(\d+) ", line))]
    cpus = dict(zip(numbers, psutil.cpu_times(percpu=True), strict=False))
    own = os.sched_getaffinity(0)
    if own <= cpus.keys():
        return [cpus[cpu] for cpu in sorted(own)]
    # Containers (lxcfs) show only their own CPUs and number them anew, but not in the affinity.
    return list(cpus.values()) if len(own) == len(cpus) else []


class OthersCpu:
    """Measures the CPU share that others took since the last measurement."""

    def __init__(
        self,
        roots: Sequence[int] | None = None,
        *,
        read: Callable[[Sequence[int]], CpuReading | None] = read_cpu,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start counting.

        Args:
            roots: The run's processes, without their descendants; by default this process.
            read: Reads the counters.
            now: Returns a monotonic time in seconds.
        """
        self._roots = [os.getpid()] if roots is None else list(roots)
        self._read, self._now = read, now
        self.begin()

    def begin(self) -> None:
        """Start counting anew."""
        self._since_s, self._before = self._now(), self._read(self._roots)

    def share(self) -> float | None:
        """Return `others_share` since the last one; None within a second of it, or if not on Linux."""
        now_s = self._now()
        if self._before is None or now_s - self._since_s < _SHORTEST_S:
            return None
        before, after = self._before, self._read(self._roots)
        assert after is not None  # the counters were there before
        self._since_s, self._before = now_s, after
        return others_share(before, after)


def own_cpu_s() -> float:
    """Return the user and system time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class OwnCpu:
    """CPU seconds of this process and all its descendants, including those that have ended."""

    def __init__(self) -> None:
        """List the descendants once. One that starts later counts when it has ended."""
        self._below = psutil.Process().children(recursive=True)

    def spent_s(self) -> float:
        """Return the seconds so far (running descendants: in hundredths). Only differences matter."""
        return own_cpu_s() + sum(_spent_s(process) for process in self._below)


def _with_children(roots: Sequence[int]) -> Iterator[psutil.Process]:
    for root in roots:
        try:
            process = psutil.Process(root)
            yield process
            yield from process.children(recursive=True)
        except psutil.NoSuchProcess:
            continue


def _spent_s(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(spent.user + spent.system + spent.children_user + spent.children_system)


def _limiting_group(groups: Path) -> tuple[float, float] | None:
    """Return (limit in cores, seconds spent) of the tightest limit on this process, in its group or above."""
    found = []
    for folder in _own_groups(groups):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            usage = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue  # the root has no limit, and some controllers may be off
        if quota != "max" and "usage_usec" in usage:
            found.append((int(quota) / int(period), int(usage["usage_usec"]) / 1e6))
    return min(found, default=None)


def _own_groups(groups: Path) -> Iterator[Path]:
    try:
        lines = Path(psutil.PROCFS_PATH, "self", "cgroup").read_text().splitlines()
    except OSError:
        return
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    folder = groups / own
    yield folder
    while folder != groups:
        folder = folder.parent
        yield folder


def resident_share(path: Path) -> float | None:
    """Return the share, 0 to 1, of a file's pages in the page cache; None if the kernel does not tell.

    Raises:
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not _may_ask(path, status):
            return None
        if status.st_size == 0:
            return 0.0
        return _mapped_share(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def resident_share_of(paths: Iterable[Path]) -> float | None:
    """Return the share, 0 to 1, of all bytes of files in the page cache; None if unknown for any file.

    Raises:
        OSError: a file cannot be opened.
    """
    resident_bytes, num_bytes = 0.0, 0
    for path in paths:
        share, size = resident_share(path), path.stat().st_size
        if share is None:
            return None
        resident_bytes += share * size
        num_bytes += size
    return resident_bytes / num_bytes if num_bytes else 0.0


def drop(paths: Iterable[Path]) -> dict[Path, str]:
    """Drop all cached pages of files. Return the files that could not be dropped, with the reason.

    Dirty pages are written to disk first, as they would stay. An empty dict means that every page is gone. A
    file that is mapped or being read may keep some pages.
    """
    kept: dict[Path, str] = {}
    for path in paths:
        try:
            reason = _drop(path)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason is not None:
            kept[path] = reason
    return kept


def _drop(path: Path) -> str | None:
    if not hasattr(os, "posix_fadvise"):
        return f"{sys.platform} has no posix_fadvise"
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    share = resident_share(path)
    if share is None:
        return "the kernel reports its cache state only to the file's owner"
    return f"{share:.0%} of it stays in memory (in use, or on a file system in memory)" if share else None


def _may_ask(path: Path, status: os.stat_result) -> bool:
    # Since Linux 5.2, mincore calls every page resident unless the caller owns the file or may write to it.
    return sys.platform == "linux" and (status.st_uid == os.geteuid() or os.access(path, os.W_OK))


def _mapped_share(descriptor: int, num_bytes: int) -> float | None:
    # Private and writable, although nothing is written: ctypes gives addresses of writable memory only.
    with mmap.mmap(
        descriptor, num_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
    ) as mapping:
        pages = np.zeros(-(-num_bytes // mmap.PAGESIZE), dtype=np.uint8)
        start = ctypes.c_ubyte.from_buffer(mapping)
        mincore = ctypes.CDLL(None).mincore
        mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        failed = mincore(ctypes.addressof(start), num_bytes, pages.ctypes.data)
        del start  # a mapping cannot be closed while something points into it
    return None if failed else float((pages & 1).mean())
