"""Write files completely or not at all, even after a crash or on a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from pcr_exp.errors import StorageError

TEMPORARY_SUFFIX = ".tmp"


def write_atomic(path: Path, chunks: Iterable[bytes]) -> None:
    """Write to a file next to `path`, sync it, rename it to `path`, and sync the folder.

    Raises:
        StorageError: the disk is full or refuses; `path` is unchanged and nothing is left next to it.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        try:
            _write_synced(temporary, chunks)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise explain_os_error(error, path) from error


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. Raises StorageError if the disk refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_os_error(error, folder) from error


def create_temporary(path: Path) -> int:
    """Open a new file for writing, after removing what a killed process left. Links are not followed.

    Raises OSError if something else is in its place.
    """
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _write_synced(path: Path, chunks: Iterable[bytes]) -> None:
    descriptor = create_temporary(path)
    try:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explain_os_error(error: OSError, path: Path) -> StorageError:
    """Return an error that names the full disk, or what else refused `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"the disk mounted at {_mount_point(path)} is full ({error.strerror}) while writing {path}. "
            "Free some space and run the same command again: it continues where it stopped."
        )
    return StorageError(f"{path} cannot be written: {error.strerror}. Check the disk and your permissions.")


def _mount_point(path: Path) -> Path:
    absolute = path.absolute()
    return next((folder for folder in absolute.parents if os.path.ismount(folder)), Path(absolute.anchor))
