"""Folders that only one user can write to, also in places that all users of a host share.

A predictable name in /dev/shm or /tmp may already exist: as a symbolic link to a file of the victim, or as a
lock that is never released. In a user's own folder, predictable names are safe.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from pcr_exp.errors import StorageError
from pcr_exp.system.atomic import explain_os_error

SHARED_MEMORY = Path("/dev/shm")
"""Named shared memory on Linux, which involves no disk."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def shared_folder() -> Path:
    """Return this user's folder in a place that all processes of the host share; make it if necessary.

    It is in /dev/shm, or in the temp folder if that cannot be used.

    Raises:
        StorageError: neither can be used, as another user has put something in its place.
    """
    name = f"pcr-exp-{os.geteuid()}"
    if os.access(SHARED_MEMORY, os.W_OK):
        with suppress(StorageError):
            return own_folder(SHARED_MEMORY / name)
    return own_folder(Path(tempfile.gettempdir()) / name)  # TMPDIR may be private to the user


def own_folder(path: Path) -> Path:
    """Return a folder for this user alone, made if it does not exist; its parent must exist.

    Raises:
        StorageError: something else is there, it belongs to another user, or others can write to it.
    """
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        require_own(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    return path


def require_own(path: Path) -> None:
    """Check that a folder belongs to this user, and that nobody else can write to it.

    Raises:
        StorageError: that is not so, or it is not a folder.
        OSError: its status cannot be read.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a folder"
        raise StorageError(f"{path} is {kind}, so it is not used. Remove it if it is yours.")
    if status.st_uid != os.geteuid():
        raise StorageError(
            f"{path} belongs to another user (uid {status.st_uid}), who could change its contents, so it is "
            "not used. Ask them to remove it, or use another folder."
        )
    if status.st_mode & _OTHERS_WRITE:
        raise StorageError(
            f"{path} is writable by other users, so its contents may be theirs. Check them, then run `chmod "
            f"go-w {path}`, or remove the folder."
        )


def require_safe_parent(path: Path) -> None:
    """Check that other users cannot replace a folder that is made in this one.

    In a sticky folder, such as /tmp, they cannot. The user's own group counts as the user.

    Raises:
        StorageError: they can.
        OSError: its status cannot be read.
    """
    status = path.stat()
    is_theirs = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid()
    )
    if is_theirs and not status.st_mode & stat.S_ISVTX:
        raise StorageError(
            f"{path} is writable by other users, who could replace our files with theirs. Use a folder of "
            f"your own, such as {path}/{os.environ.get('USER', 'mine')}, or run `chmod go-w {path}`."
        )
