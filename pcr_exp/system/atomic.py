"""Write files completely or not at all, even after a crash or on a full disk."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pcr_exp.errors import StorageError

TEMPORARY_SUFFIX = ".tmp"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: Path, chunks: Iterable[bytes]) -> None:
    """Write to a file next to `path`, sync it, rename it to `path`, and sync the folder.

    Several threads and processes may write the same path: one writes after the other, and the last one's file
    stays.

    Raises:
        StorageError: the disk is full or refuses; `path` is unchanged and nothing is left next to it.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with _locked_temporary(temporary) as descriptor:
            try:
                _write_synced(descriptor, chunks)
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
    return os.open(path, _NEW_FILE, 0o666)


@contextmanager
def _locked_temporary(path: Path) -> Iterator[int]:
    """Open a new file for writing, and lock it until its end. What a killed writer left is replaced.

    The lock tells a live writer's file, which is waited for, from a dead one's, which is removed.
    """
    while (descriptor := _create_locked(path)) is None:
        _remove_left(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _create_locked(path: Path) -> int | None:
    """Return a new file's descriptor, or None if there is a file, or another writer came between."""
    try:
        descriptor = os.open(path, _NEW_FILE, 0o666)
    except FileExistsError:
        return None
    if _lock_named(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _remove_left(path: Path) -> None:
    """Wait for the file's writer, if one is alive, and remove what is left after it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError:  # a link, or another user's file: no live writer of ours
        path.unlink(missing_ok=True)
        return
    try:
        if _lock_named(descriptor, path):
            path.unlink()
    finally:
        os.close(descriptor)


def _lock_named(descriptor: int, path: Path) -> bool:
    """Lock an open file, and return whether it still has this name: its last writer may have renamed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise  # without locks, only writers at the same time are in danger
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write_synced(descriptor: int, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise  # some file systems cannot sync folders, only files
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
