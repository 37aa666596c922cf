"""What of a file the kernel keeps in memory, and letting go of it, so that a run can say how warm it began.

A file's owner may do this without privileges. Linux only: elsewhere the state is unknown, and drops are
refused.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def resident_share(path: Path) -> float | None:
    """Share of a file's pages that lie in the page cache, 0 to 1; None where the kernel does not tell.

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
    """Share of all bytes of files that lies in the page cache, 0 to 1; None where one's is not told.

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
    """Let go of all cached pages of files; what could not be dropped comes back, with the reason.

    Pages that were written and not yet stored are stored first, since those stay. An empty dict says that
    every page is gone; a file that somebody maps or reads at the moment may keep some.
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
        return "the kernel tells its state only to the file's owner"
    return f"{share:.0%} of it stays in memory (in use, or on a file system in memory)" if share else None


def _may_ask(path: Path, status: os.stat_result) -> bool:
    # Since Linux 5.2, to others than those who own or may write the file, mincore calls every page resident.
    return sys.platform == "linux" and (status.st_uid == os.geteuid() or os.access(path, os.W_OK))


def _mapped_share(descriptor: int, num_bytes: int) -> float | None:
    # Private and writable, though nothing is written: ctypes gives the address of writable memory only.
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
