"""A cache of prefixes that grow: what was read of a record is kept, and a higher group fetches the rest.

Nothing is evicted. Every record is read once an epoch, so what was kept first is worth as much as anything
that could take its place, and each byte kept saves a byte an epoch; a cache that keeps what came last (LRU)
has mostly dropped a record by the time that it is wanted again. The last prefix to find room is cut to fit.

It is never the only copy of anything: a cache that is lost, damaged or full costs reads, and nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import xxhash
from filelock import FileLock

from pcr_exp.errors import StorageError
from pcr_exp.storage import RangeReader
from pcr_exp.system.atomic import TEMPORARY_SUFFIX, make_folder

log = logging.getLogger(__name__)

_SUFFIX = ".prefix"
_CHECKSUM_BYTES = 8


class PrefixCache(Protocol):
    """Where prefixes of files are kept. Thread safe."""

    def get(self, path: str) -> bytes:
        """What is kept of a file, from its beginning on; empty if nothing is."""
        ...

    def put(self, path: str, prefix: bytes) -> None:
        """Keep a longer prefix of a file than before, as far as there is room."""
        ...

    def forget(self, path: str) -> bool:
        """Keep nothing of a file any more; whether something was kept."""
        ...


class MemoryCache:
    """Prefixes in this process's memory, `max_bytes` of them."""

    def __init__(self, max_bytes: int) -> None:
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._prefixes: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes:
        """As the protocol's."""
        return self._prefixes.get(path, b"")

    def put(self, path: str, prefix: bytes) -> None:
        """As the protocol's."""
        with self._lock:
            before = len(self.get(path))
            kept = prefix[: before + self._max_bytes - self.num_bytes]
            if len(kept) > before:
                self._prefixes[path] = kept
                self.num_bytes += len(kept) - before

    def forget(self, path: str) -> bool:
        """As the protocol's."""
        with self._lock:
            held = self._prefixes.pop(path, b"")
            self.num_bytes -= len(held)
        return bool(held)


class DiskCache:
    """Prefixes in a local folder, `max_bytes` of them, for all processes of a host that name the same one.

    A file is a checksum and a prefix, and is replaced as a whole. It is not synced: one that a crash has
    damaged does not match its checksum, and is read anew. A lock, which the kernel drops when its holder
    dies, guards the sum of all sizes.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Raises StorageError if the folder cannot be written to."""
        make_folder(folder)
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = FileLock(folder / "lock", thread_local=False, fallback_to_soft=False)
        self._threads = threading.Lock()
        with self._threads, self._lock:
            for path in folder.rglob(f"*{TEMPORARY_SUFFIX}"):  # of a process that was killed
                path.unlink()
            sizes = [path.stat().st_size for path in folder.rglob(f"*{_SUFFIX}")]
            self._write_used(sum(sizes) - _CHECKSUM_BYTES * len(sizes))

    @property
    def num_bytes(self) -> int:
        """Bytes of all prefixes."""
        return int((self._folder / "used").read_text() or 0)

    def get(self, path: str) -> bytes:
        """As the protocol's."""
        try:
            stored = self._file(path).read_bytes()
        except OSError:
            return b""
        prefix = stored[_CHECKSUM_BYTES:]
        if stored[:_CHECKSUM_BYTES] != xxhash.xxh3_64_digest(prefix):
            log.warning("%s is damaged, and is read anew from storage", self._file(path))
            return b""
        return prefix

    def put(self, path: str, prefix: bytes) -> None:
        """As the protocol's. A disk that refuses is said so, and costs reads alone."""
        try:
            with self._threads, self._lock:
                self._put(self._file(path), prefix)
        except OSError as error:
            log.warning("the cache in %s keeps nothing more: %s", self._folder, error)

    def forget(self, path: str) -> bool:
        """As the protocol's."""
        file = self._file(path)
        with self._threads, self._lock:
            if not file.exists():
                return False
            num_bytes = file.stat().st_size - _CHECKSUM_BYTES
            file.unlink()
            self._write_used(self.num_bytes - num_bytes)
        return True

    def _put(self, file: Path, prefix: bytes) -> None:
        before = file.stat().st_size - _CHECKSUM_BYTES if file.exists() else 0
        used = self.num_bytes
        room = max(0, self._max_bytes - used)  # other processes may have been given more
        kept = prefix[: before + room]
        if len(kept) <= before:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(file.name + TEMPORARY_SUFFIX)
        temporary.write_bytes(xxhash.xxh3_64_digest(kept) + kept)
        self._write_used(used + len(kept) - before)  # a crash from here on counts too much, not too little
        temporary.replace(file)

    def _write_used(self, num_bytes: int) -> None:
        temporary = self._folder / f"used{TEMPORARY_SUFFIX}"
        temporary.write_text(str(num_bytes))
        temporary.replace(self._folder / "used")

    def _file(self, path: str) -> Path:
        return self._folder / f"{path}{_SUFFIX}"


class CachedStorage:
    """Another storage's records, beginnings of which come from a cache. Other files pass through it."""

    def __init__(self, inner: RangeReader, cache: PrefixCache) -> None:
        self.inner = inner
        self.is_remote = getattr(inner, "is_remote", False)
        self.cached_bytes = 0
        """Bytes that the cache gave in place of the storage."""
        self.may_keep: Callable[[str], int | None] = lambda _: None
        """Given a path, the bytes of it that may be kept; None: all that are read."""
        self._cache = cache
        self._lock = threading.Lock()

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's `read`, which is asked for what is missing, with one request at most.

        Raises:
            StorageError: as the inner storage's.
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
        limit = self.may_keep(path)
        self._cache.put(path, prefix if limit is None else prefix[:limit])
        return prefix[offset:end]

    def size(self, path: str) -> int:
        """As the inner storage's `size`."""
        return self.inner.size(path)

    def forget(self, path: str) -> bool:
        """Keep nothing of a file, as what is kept of it is damaged; whether something was kept."""
        return self._cache.forget(path)

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.cached_bytes += num_bytes

    def __str__(self) -> str:
        return str(self.inner)


def open_cache(place: str, max_bytes: int, key: str) -> PrefixCache:
    """The cache that `storage.cache` names: `memory`, or a local folder.

    Args:
        place: The name.
        max_bytes: Of all prefixes in it, whatever they are of.
        key: Of what is cached; records of another key never meet.

    Raises:
        StorageError: the folder cannot be written to.
    """
    if place == "memory":
        return MemoryCache(max_bytes)
    if "://" in place:
        raise StorageError(f"storage.cache={place!r}: wanted memory, or a local folder.")
    return _Keyed(DiskCache(Path(os.path.expandvars(place)).expanduser(), max_bytes), key)


class _Keyed:
    def __init__(self, cache: PrefixCache, key: str) -> None:
        self._cache = cache
        self._key = key

    def get(self, path: str) -> bytes:
        return self._cache.get(f"{self._key}/{path}")

    def put(self, path: str, prefix: bytes) -> None:
        self._cache.put(f"{self._key}/{path}", prefix)

    def forget(self, path: str) -> bool:
        return self._cache.forget(f"{self._key}/{path}")
