"""Open files that must be regular. A FIFO in their place would block for ever; a device might never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | Path) -> tuple[int, os.stat_result]:
    """Open a file for reading, not inherited by child processes. Return its descriptor and status.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    # Without O_NONBLOCK, opening a FIFO waits for a writer; for a regular file it changes nothing.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        require_regular(status, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, status


def require_regular(status: os.stat_result, path: str | Path) -> None:
    """Raise OSError unless this is the status of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = "a FIFO" if stat.S_ISFIFO(status.st_mode) else "a device or a socket"
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


def open_regular_file(path: Path) -> BinaryIO:
    """Open a file for reading, as `path.open("rb")` does. Raises OSError as `open_regular`."""
    descriptor, _ = open_regular(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raises OSError as `open_regular`."""
    with open_regular_file(path) as file:
        return file.read()
