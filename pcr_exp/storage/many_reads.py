"""Ranges of several local files by one call of `many_reads.c`, which waits for the interpreter once.

The library is built where the package is installed, if there is a C compiler. Without it files are read one
after the other, to the same bytes.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence

import numpy as np

from pcr_exp.system.c_library import built_library, load_own, opened

VERSION = 2
"""`pcr_many_reads_version` of the library that these types are of."""
_NUMBERS = ctypes.POINTER(ctypes.c_int64)
_FUNCTIONS = {
    "pcr_many_reads_version": (ctypes.c_int32, ()),
    "pcr_many_reads": (
        None,
        (ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p), _NUMBERS, _NUMBERS, ctypes.c_void_p, _NUMBERS),
    ),
}


class ManyReads:
    """The shared library at `path`. Thread safe.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks the calls, or is of another version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = load_own(path, _FUNCTIONS, VERSION)

    def read(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """For each (file, offset, length) the bytes [offset, offset + length), fewer at the file's end.

        There is room for all lengths together meanwhile.

        Raises:
            OSError: of the first file that cannot be read, with its name.
        """
        files, offsets, lengths = zip(*ranges, strict=True)
        count = len(ranges)
        room = np.empty(sum(lengths), dtype=np.uint8)
        received = (ctypes.c_int64 * count)()
        self._library.pcr_many_reads(
            count,
            (ctypes.c_char_p * count)(*map(os.fsencode, files)),
            (ctypes.c_int64 * count)(*offsets),
            (ctypes.c_int64 * count)(*lengths),
            room.ctypes.data,
            received,
        )
        found, start = [], 0
        for file, length, num_bytes in zip(files, lengths, received, strict=True):
            if num_bytes < 0:
                raise OSError(-num_bytes, os.strerror(-num_bytes), file)
            found.append(room[start : start + num_bytes].tobytes())
            start += length
        return found


def library_path() -> str | None:
    """The library that was built with the package; None where there was no compiler."""
    return built_library("pcr_exp.storage._many_reads")


@functools.cache
def find_many_reads() -> ManyReads | None:
    """The library that was built with the package, if it was, and is of this version."""
    return opened(library_path(), ManyReads)
