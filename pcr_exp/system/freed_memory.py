"""What becomes of memory that a process has freed."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 2**26


def keep_freed_memory() -> None:
    """Let this process keep up to 64 MiB that it has freed, where its C library is glibc.

    By itself glibc gives megabytes back at once, and gets them again, page by page and cleared, for the
    coefficients and pixels of the next image.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
