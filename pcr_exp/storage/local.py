"""Range reads of files below a local folder."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pcr_exp.errors import MissingFileError, StorageError
from pcr_exp.storage.protocol import Range, Storage
from pcr_exp.system.c_library import built_library, load_own, opened
from pcr_exp.system.regular import open_regular, require_regular

_MAX_TOGETHER_BYTES = 2**24
MANY_READS_VERSION = 2
"""The `pcr_many_reads_version` that the ctypes declarations here match."""
_NUMBERS = ctypes.POINTER(ctypes.c_int64)
_FUNCTIONS = {
    "pcr_many_reads_version": (ctypes.c_int32, ()),
    "pcr_many_reads": (
        None,
        (ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p), _NUMBERS, _NUMBERS, ctypes.c_void_p, _NUMBERS),
    ),
}


class LocalStorage(Storage):
    """Files below `root`, read with plain `pread` (thread-safe: no file position is shared).

    The kernel is told not to read ahead: bytes beyond a prefix are not needed, and read-ahead would fetch up
    to megabytes of them. Requested bytes are still read in large requests.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._root = str(self.root)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes `[offset, offset + length)` of a file; fewer at its end.

        Raises:
            StorageError: the file is missing, not a regular file, or cannot be read.
        """
        file = f"{self._root}/{path}"  # pathlib would take longer than the read
        try:
            descriptor, status = open_regular(file)
            try:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
                # An index may claim any length, and pread allocates all of it before it reads.
                num_bytes = min(length, max(0, status.st_size - offset))
                return _read_fully(descriptor, offset, num_bytes) if num_bytes else b""
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unreadable(Path(file), error) from error

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read each range; small ones in one call, if the C library was built.

        Raises:
            StorageError: as `read`, for the first file that cannot be read.
        """
        library = find_many_reads()
        if library is None or sum(length for _, _, length in ranges) > _MAX_TOGETHER_BYTES:
            return super().read_many(ranges)
        try:
            return library.read([(f"{self._root}/{path}", offset, length) for path, offset, length in ranges])
        except OSError:
            return super().read_many(ranges)  # names the file and what is wrong with it

    def size(self, path: str) -> int:
        """Return a file's length in bytes. Raises StorageError if it is missing, or not a regular file."""
        file = self.root / path
        try:
            status = file.stat()
            require_regular(status, file)
        except OSError as error:
            raise _unreadable(file, error) from error
        return status.st_size

    def names(self, folder: str) -> set[str]:
        """Names of the files directly in a folder. Raises StorageError if it cannot be listed."""
        path = self.root / folder
        try:
            with os.scandir(path) as entries:
                return {entry.name for entry in entries if not entry.is_dir()}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as error:
            raise StorageError(f"{path} cannot be listed: {error.strerror or error}.") from error

    def __str__(self) -> str:
        return str(self.root)


def _read_fully(descriptor: int, offset: int, length: int) -> bytes:
    """Read until the end of the range or file: one pread may return less (Linux caps it at 2 GiB)."""
    first = os.pread(descriptor, length, offset)
    if len(first) == length or not first:
        return first
    parts = [first]
    received = len(first)
    while received < length:
        part = os.pread(descriptor, length - received, offset + received)
        if not part:
            break
        parts.append(part)
        received += len(part)
    return b"".join(parts)


def _unreadable(file: Path, error: OSError) -> StorageError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError(f"{file} does not exist. Check the path, or make the records first.")
    return StorageError(f"{file} cannot be read: {error.strerror or error}.")


class ManyReads:
    """Reads ranges of several files in one call of `many_reads.c`, waiting once for the GIL. Thread-safe.

    The library at `path` is built when the package is installed, if there is a C compiler. Without it, files
    are read one after the other, with the same result.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks the calls, or has another version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = load_own(path, _FUNCTIONS, MANY_READS_VERSION)

    def read(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return, for each (file, offset, length), bytes [offset, offset + length); fewer at the file's end.

        Memory for all lengths together is allocated meanwhile.

        Raises:
            OSError: the error of the first file that cannot be read, with its name.
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
    """Return the path of the library built with the package; None if there was no compiler."""
    return built_library("pcr_exp.storage._many_reads")


@functools.cache
def find_many_reads() -> ManyReads | None:
    """Return the library built with the package; None if there is none, or it has another version."""
    return opened(library_path(), ManyReads)
