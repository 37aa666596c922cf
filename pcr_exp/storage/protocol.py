"""The interface that every storage implements, and bases for storages that wrap others."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from operator import add, sub
from typing import TypeAlias

from pcr_exp.errors import MissingFileError

Range: TypeAlias = tuple[str, int, int]
"""Path, offset and length (both in bytes)."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of a storage so far. Add them over layers and sessions; subtract them for a period of time."""

    num_requests: int = 0
    """Each read is one request, and each retry another."""
    num_retries: int = 0
    """Requests that repeat one that failed in transit."""
    bytes_read: int = 0
    cached_bytes: int = 0
    """Bytes that came from a cache instead of storage."""
    busy_s: float = 0.0
    """Seconds with at least one read in flight."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(sub, astuple(self), astuple(other)))


class Storage(ABC):
    """A source of bytes. Thread-safe. Paths are relative to its root, which `str` returns."""

    is_remote = False
    """Whether bytes may be damaged in transit, so that reading them again can help."""
    reads_many = False
    """Whether one call for several ranges is faster than one call for each."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes of a file from `offset` on; fewer at its end. Raises StorageError."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the number of bytes in a file. Raises StorageError."""

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read each range, one after the other. Raises the StorageError of the first that fails."""
        return [self.read(*one) for one in ranges]

    def names(self, folder: str) -> set[str] | None:  # noqa: ARG002
        """Names of the files directly in a folder (none if it is missing); None if it cannot be listed."""
        return None

    def forget(self, path: str) -> bool:  # noqa: ARG002
        """Drop what is cached of a file, as it is damaged. Return whether anything was cached."""
        return False

    def counts(self) -> Counts:
        """Return the counters; zeros if nothing is counted."""
        return Counts()


class WritableStorage(Storage):
    """A storage that records can be sent to."""

    def size_or_none(self, path: str) -> int | None:
        """Return as `size` does, or None if there is no such file."""
        try:
            return self.size(path)
        except MissingFileError:
            return None

    @abstractmethod
    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield (path, bytes) of every file below a folder. Raises StorageError."""

    @abstractmethod
    def write(self, path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
        """Create a file. If there is one already, leave it unchanged and return False.

        If two writers race, one wins. An existing file of the same bytes counts as written. With `replaces`,
        a file of those bytes is replaced. Raises StorageError.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file if it exists. Raises StorageError."""

    def flush(self) -> None:
        """Wait until everything written so far is stored. Raises StorageError."""


class Wrapped(Storage):
    """Base of wrappers: forwards everything to another storage, and subclasses override what they change."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.is_remote = inner.is_remote
        self.reads_many = inner.reads_many

    @property
    def inner(self) -> Storage:
        """The wrapped storage."""
        return self._inner

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Forward to the inner storage."""
        return self.inner.read(path, offset, length)

    def size(self, path: str) -> int:
        """Forward to the inner storage."""
        return self.inner.size(path)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Forward to the inner storage."""
        return self.inner.read_many(ranges)

    def names(self, folder: str) -> set[str] | None:
        """Forward to the inner storage."""
        return self.inner.names(folder)

    def forget(self, path: str) -> bool:
        """Forward to the inner storage."""
        return self.inner.forget(path)

    def counts(self) -> Counts:
        """Forward to the inner storage."""
        return self.inner.counts()

    def __str__(self) -> str:
        return str(self.inner)


class Below(Wrapped):
    """A folder of another storage."""

    def __init__(self, inner: Storage, folder: str) -> None:
        super().__init__(inner)
        self._folder = folder

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Forward to the inner storage."""
        return self.inner.read(f"{self._folder}/{path}", offset, length)

    def size(self, path: str) -> int:
        """Forward to the inner storage."""
        return self.inner.size(f"{self._folder}/{path}")

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Forward to the inner storage."""
        return self.inner.read_many([(f"{self._folder}/{path}", start, size) for path, start, size in ranges])

    def names(self, folder: str) -> set[str] | None:
        """Forward to the inner storage."""
        return self.inner.names(f"{self._folder}/{folder}" if folder else self._folder)

    def forget(self, path: str) -> bool:
        """Forward to the inner storage."""
        return self.inner.forget(f"{self._folder}/{path}")

    def __str__(self) -> str:
        return f"{self.inner}/{self._folder}"


class Joined(Storage):
    """Several storages as one, so that they share limits. Paths begin with the name of their storage."""

    def __init__(self, storages: Mapping[str, Storage]) -> None:
        self._storages = storages
        self.is_remote = any(storage.is_remote for storage in storages.values())
        self.reads_many = all(storage.reads_many for storage in storages.values())

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Forward to the storage that the path names."""
        storage, own = self._of(path)
        return storage.read(own, offset, length)

    def size(self, path: str) -> int:
        """Forward to the storage that the path names."""
        storage, own = self._of(path)
        return storage.size(own)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read all ranges in one call, if they are in one storage."""
        if len({path.partition("/")[0] for path, _, _ in ranges}) != 1:
            return super().read_many(ranges)
        storage, _ = self._of(ranges[0][0])
        return storage.read_many([(self._of(path)[1], start, size) for path, start, size in ranges])

    def names(self, folder: str) -> set[str] | None:
        """Forward to the storage that the path names."""
        storage, own = self._of(folder)
        return storage.names(own)

    def forget(self, path: str) -> bool:
        """Forward to the storage that the path names."""
        storage, own = self._of(path)
        return storage.forget(own)

    def counts(self) -> Counts:
        """Return the sum of the storages' counters."""
        return sum((storage.counts() for storage in self._storages.values()), Counts())

    def _of(self, path: str) -> tuple[Storage, str]:
        name, _, own = path.partition("/")
        return self._storages[name], own

    def __str__(self) -> str:
        return ", ".join(f"{name}: {storage}" for name, storage in self._storages.items())


_this_thread = threading.local()


@contextmanager
def opening() -> Iterator[None]:
    """Within this context, a request of this thread that is refused immediately is retried at most once.

    Users who open an address may have misspelt it, and are waiting for the answer. A run in progress has read
    from there before, so it keeps retrying (`storage.retry`).
    """
    before = is_opening()
    _this_thread.opens = True
    try:
        yield
    finally:
        _this_thread.opens = before


def is_opening() -> bool:
    """Whether this thread is within `opening`."""
    return getattr(_this_thread, "opens", False)
