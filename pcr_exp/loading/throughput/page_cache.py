"""What of a file lies in the page cache, and dropping it. Linux."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value


def drop(files: Iterable[Path]) -> None:
    """Ask the kernel to forget the files' pages. It may decline: `cached_share` tells.

    It declines for memory file systems, and for pages that another process has mapped.
    """
    for file in files:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)  # pages that are not on the disk yet cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_share(files: Iterable[Path]) -> float:
    """Share (0..1) of the files' pages that are in the page cache; 0 for no pages.

    Since Linux 5.2 the kernel calls every page of a file cached to those who may not write it.
    """
    num_cached = num_pages = 0
    for file in files:
        cached, pages = _count_pages(file)
        num_cached += cached
        num_pages += pages
    return num_cached / num_pages if num_pages else 0.0


def _count_pages(file: Path) -> tuple[int, int]:
    """(pages in the page cache, pages in all)."""
    libc = _libc()
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        length = os.fstat(descriptor).st_size
        if length == 0:
            return 0, 0
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file))
        pages = -(-length // _PAGE)
        try:
            states = (ctypes.c_ubyte * pages)()
            if libc.mincore(address, length, states) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file))
        finally:
            libc.munmap(address, length)
        return sum(state & 1 for state in states), pages
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_long),
    )
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc
