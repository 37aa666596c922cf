"""A cache of growing record prefixes: what was read is cached, and a higher group reads only the rest.

Nothing is evicted. Every record is read once per epoch, so each cached byte saves one byte per epoch, and no
other would save more. An LRU cache would mostly have dropped a record by the time it is needed again. The
last prefix to find room is cut to fit.

The cache never holds the only copy of anything. If it is lost, damaged or full, this only costs reads.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Protocol

import xxhash
from filelock import FileLock

from pcr_exp.errors import StorageError
from pcr_exp.storage.protocol import Counts, Range, Storage, Wrapped
from pcr_exp.system.atomic import (
    TEMPORARY_SUFFIX,
    create_temporary,
    explain_os_error,
    make_folder,
    write_atomic,
)
from pcr_exp.system.own_folder import require_own, require_safe_parent
from pcr_exp.system.regular import read_regular, require_regular

log = logging.getLogger(__name__)

CACHE_FOLDER = "pcr-exp-cache"
"""The cache's own folder, inside the one that is named."""
CACHE_TAG = "CACHEDIR.TAG"
"""Marks the folder as a cache that can be recreated, for backup programs too (bford.info/cachedir)."""
_TAG = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# A cache of pcr-exp: beginnings of records, which can be read again. It may be removed at any time.\n"
)
_SUFFIX = ".prefix"
_USED = "used"
_CHECKSUM_BYTES = 8


class PrefixCache(Protocol):
    """A store of file prefixes. Thread-safe."""

    def get(self, path: str) -> bytes:
        """Return the cached prefix of a file; empty if there is none."""

    def put(self, path: str, prefix: bytes) -> None:
        """Cache a longer prefix of a file than before, as far as there is room."""

    def forget(self, path: str) -> bool:
        """Drop the cached prefix of a file. Return whether there was one."""


class MemoryCache:
    """Prefixes in this process's memory, at most `max_bytes` in all."""

    def __init__(self, max_bytes: int) -> None:
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._prefixes: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes:
        """See `PrefixCache.get`."""
        return self._prefixes.get(path, b"")

    def put(self, path: str, prefix: bytes) -> None:
        """See `PrefixCache.put`."""
        with self._lock:
            before = len(self.get(path))
            kept = prefix[: before + self._max_bytes - self.num_bytes]
            if len(kept) > before:
                self._prefixes[path] = kept
                self.num_bytes += len(kept) - before

    def forget(self, path: str) -> bool:
        """See `PrefixCache.forget`."""
        with self._lock:
            held = self._prefixes.pop(path, b"")
            self.num_bytes -= len(held)
        return bool(held)


class DiskCache:
    """Prefixes in a local folder, at most `max_bytes` in all, shared by a user's processes that name it.

    They are in a subfolder, `pcr-exp-cache`, which a CACHEDIR.TAG marks as the cache's. Nothing else is read,
    counted, changed or removed. A file is a checksum and a prefix, and is replaced as a whole. Files are not
    synced: one that a crash has damaged does not match its checksum, and is read again from storage. A lock
    guards the sum of all sizes; the kernel releases it when its holder dies.
    """

    def __init__(self, folder: Path, max_bytes: int, key: str = "") -> None:
        """Open the cache in `folder`. Prefixes of another `key` are of other records, and never returned.

        Raises:
            StorageError: the cache does not exist and cannot be made, or other users can write to it.
        """
        self._folder = _cache_folder(folder)
        self._key = key
        self._max_bytes = max_bytes
        self._lock = FileLock(self._folder / "lock", thread_local=False, fallback_to_soft=False)
        self._threads = threading.Lock()
        try:
            with self._threads, self._lock:
                self._write_used(self._tidy())
        except OSError as error:
            raise explain_os_error(error, Path(error.filename or self._folder)) from error

    @property
    def num_bytes(self) -> int:
        """Total bytes of all prefixes."""
        return int((self._folder / "used").read_text() or 0)

    def get(self, path: str) -> bytes:
        """See `PrefixCache.get`."""
        try:
            stored = read_regular(self._file(path))
        except OSError:
            return b""
        prefix = stored[_CHECKSUM_BYTES:]
        if stored[:_CHECKSUM_BYTES] != xxhash.xxh3_64_digest(prefix):
            log.warning("%s is damaged, so its bytes are read from storage again", self._file(path))
            self.forget(path)
            return b""
        return prefix

    def put(self, path: str, prefix: bytes) -> None:
        """See `PrefixCache.put`. Disk errors are logged, and only cost reads."""
        try:
            with self._threads, self._lock:
                self._put(self._file(path), prefix)
        except OSError as error:
            log.warning("the cache in %s cannot store more: %s", self._folder, error)

    def forget(self, path: str) -> bool:
        """See `PrefixCache.forget`."""
        file = self._file(path)
        try:
            with self._threads, self._lock:
                num_bytes = _cached_bytes(file)
                if num_bytes is None:
                    return False
                file.unlink()
                self._write_used(self.num_bytes - num_bytes)
        except OSError as error:
            log.warning("the cache in %s cannot remove %s: %s", self._folder, path, error)
            return False
        return True

    def _tidy(self) -> int:
        """Remove what killed processes have left. Return the bytes of all prefixes."""
        num_bytes = 0
        for folder, _, names in os.walk(self._folder):
            for file in (Path(folder, name) for name in names):
                with suppress(OSError):  # files that are not the cache's stay
                    if file.name.endswith(_SUFFIX):
                        num_bytes += _cached_bytes(file) or 0
                    elif file.name.endswith(_SUFFIX + TEMPORARY_SUFFIX) and _cached_bytes(file) is not None:
                        file.unlink()
        return num_bytes

    def _put(self, file: Path, prefix: bytes) -> None:
        before = _cached_bytes(file) or 0
        used = self.num_bytes
        room = max(0, self._max_bytes - used)  # other processes may have a higher limit
        kept = prefix[: before + room]
        if len(kept) <= before:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(file.name + TEMPORARY_SUFFIX)
        try:
            with os.fdopen(create_temporary(temporary), "wb") as written:
                written.write(xxhash.xxh3_64_digest(kept) + kept)
            # A crash from here on leaves a count that is too high, not too low.
            self._write_used(used + len(kept) - before)
            temporary.replace(file)
        except OSError:  # do not keep a full disk full
            temporary.unlink(missing_ok=True)
            raise

    def _write_used(self, num_bytes: int) -> None:
        temporary = self._folder / f"{_USED}{TEMPORARY_SUFFIX}"
        with os.fdopen(create_temporary(temporary), "w") as written:
            written.write(str(num_bytes))
        temporary.replace(self._folder / _USED)

    def _file(self, path: str) -> Path:
        return self._folder / self._key / f"{path}{_SUFFIX}"


def _cached_bytes(file: Path) -> int | None:
    """Bytes of the prefix in a file; None if there is no file. Raises OSError if it is not a regular file."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return None
    require_regular(status, file)
    return max(0, status.st_size - _CHECKSUM_BYTES)


def _cache_folder(named: Path) -> Path:
    """Return the cache's own folder inside the named one, created if missing.

    Several processes may create it at the same time: it appears complete, with its tag.

    Raises:
        StorageError: other users can write there, something else is in its place, or a disk access fails.
    """
    make_folder(named)
    folder = named / CACHE_FOLDER
    try:
        require_safe_parent(named)
        if not os.path.lexists(folder) or _is_empty(folder):
            _make_tagged(named, folder)
        require_own(folder)
        tag = folder / CACHE_TAG
        if not tag.is_file() or read_regular(tag) != _TAG:
            raise StorageError(
                f"{folder} exists already and is no cache of pcr-exp (it has no {CACHE_TAG} that says so). "
                "It is left unchanged. Move it away, or name another folder as storage.cache."
            )
    except OSError as error:
        raise explain_os_error(error, Path(error.filename or folder)) from error
    return folder


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())


def _make_tagged(named: Path, folder: Path) -> None:
    made = Path(mkdtemp(prefix=f".{CACHE_FOLDER}-", dir=named))  # accessible to this user only
    try:
        write_atomic(made / CACHE_TAG, [_TAG])
        made.rename(folder)  # replaces an empty folder, and nothing else
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


class CachedStorage(Wrapped):
    """Another storage with a cache for the beginnings of its records. Other files are not cached."""

    def __init__(self, inner: Storage, cache: PrefixCache, keep: Mapping[str, int] | None = None) -> None:
        """`keep`: by path, how many bytes may be cached (of other paths, none); None: all that are read."""
        super().__init__(inner)
        self.reads_many = False
        self.cached_bytes = 0
        """Bytes that came from the cache instead of the storage."""
        self._keep = keep
        self._cache = cache
        self._lock = threading.Lock()

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read from the cache, and what is missing from the inner storage, with at most one request.

        Raises:
            StorageError: as the inner storage.
        """
        end = offset + length
        held = self._cache.get(path) if path.endswith(".pcr") else b""
        if len(held) >= end:
            self._count(length)
            return held[offset:end]
        if offset > len(held) or not path.endswith(".pcr"):
            return self.inner.read(path, offset, length)
        prefix = held + self.inner.read(path, len(held), end - len(held))
        self._count(len(held) - offset)
        self._cache.put(path, prefix if self._keep is None else prefix[: self._keep.get(path, 0)])
        return prefix[offset:end]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read each range with `read`, one after the other."""
        return Storage.read_many(self, ranges)

    def forget(self, path: str) -> bool:
        """Drop the cached prefix of a file, as it is damaged. Return whether there was one."""
        return self._cache.forget(path)

    def counts(self) -> Counts:
        """Return the inner storage's counters, plus the bytes that the cache saved it."""
        return self.inner.counts() + Counts(cached_bytes=self.cached_bytes)

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.cached_bytes += num_bytes


def open_cache(address: str, max_bytes: int, key: str) -> PrefixCache:
    """Open the cache that `storage.cache` names: `memory`, or a local folder, which gets a subfolder for it.

    Args:
        address: Value of `storage.cache`.
        max_bytes: Limit for all prefixes in the cache, whatever records they are of.
        key: Key of the cached records. Those of other keys are never returned.

    Raises:
        StorageError: the folder is not writable, other users can write to it, or it holds something else.
    """
    if address == "memory":
        return MemoryCache(max_bytes)
    if "://" in address:
        raise StorageError(f"storage.cache={address!r}: wanted memory, or a local folder.")
    try:
        return DiskCache(Path(os.path.expandvars(address)).expanduser(), max_bytes, key)
    except StorageError as error:
        raise StorageError(f"storage.cache={address!r}: {error}") from error
