"""Opening what must be a regular file: a FIFO in its place would block for ever, a device give no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | Path) -> tuple[int, os.stat_result]:
    """A descriptor of a file to read, which is not inherited, and the file's status.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    # Without O_NONBLOCK, opening a FIFO waits for whoever writes to it; of a regular file it changes nothing.
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
    raise OSError(errno.EINVAL, f"it is {kind} and no regular file", str(path))


def open_regular_file(path: Path) -> BinaryIO:
    """A file to read, as `path.open("rb")` gives it. Raises OSError as `open_regular`."""
    descriptor, _ = open_regular(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """All of a file. Raises OSError as `open_regular`."""
    with open_regular_file(path) as file:
        return file.read()
