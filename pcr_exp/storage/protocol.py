"""The interface of every storage, and of a storage that wraps another. Nothing else is asked of one."""

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
"""Path, offset and length."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of storage so far. They add up over layers and sessions, and subtract over time."""

    num_requests: int = 0
    """Each read is one, and each time that it was made again another."""
    num_retries: int = 0
    """Requests that repeat one which failed on its way."""
    bytes_read: int = 0
    cached_bytes: int = 0
    """Bytes that a cache gave in place of storage."""
    busy_s: float = 0.0
    """Seconds with reads in flight, however many."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(sub, astuple(self), astuple(other)))


class Storage(ABC):
    """Where bytes come from. Thread safe; paths are relative to its root, which `str` tells."""

    is_remote = False
    """Whether what comes may be damaged on its way, and be whole when it is read again."""
    reads_many = False
    """Whether several ranges come sooner by one call than one after the other."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes of a file from `offset` on; fewer at its end. Raises StorageError."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Bytes in a file. Raises StorageError."""

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """As `read` of each range, one after the other. Raises StorageError of the first that fails."""
        return [self.read(*one) for one in ranges]

    def names(self, folder: str) -> set[str] | None:  # noqa: ARG002
        """Names of the files right in a folder, none if it is not there; None if it cannot be listed."""
        return None

    def forget(self, path: str) -> bool:  # noqa: ARG002
        """Keep nothing of a file, as what is kept of it is damaged; whether something was kept."""
        return False

    def counts(self) -> Counts:
        """Its counts; zeros if it counts nothing."""
        return Counts()


class WritableStorage(Storage):
    """One that records can be sent to."""

    def size_or_none(self, path: str) -> int | None:
        """As `size`; None if there is no such file."""
        try:
            return self.size(path)
        except MissingFileError:
            return None

    @abstractmethod
    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """(path, bytes) of every file below a folder. Raises StorageError."""

    @abstractmethod
    def write(self, path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
        """Write a file where there is none; False: there is one, and it stays.

        If two write at a time, one wins; a file of these bytes counts as written. With `replaces`, a file
        of those bytes is replaced. Raises StorageError.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it is there. Raises StorageError."""

    def flush(self) -> None:
        """Return when all is there that was written so far. Raises StorageError."""


class Wrapped(Storage):
    """Another storage, passed on whole: a wrapper overrides what it changes."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.is_remote = inner.is_remote
        self.reads_many = inner.reads_many

    @property
    def inner(self) -> Storage:
        """The wrapped storage."""
        return self._inner

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's."""
        return self.inner.read(path, offset, length)

    def size(self, path: str) -> int:
        """As the inner storage's."""
        return self.inner.size(path)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """As the inner storage's."""
        return self.inner.read_many(ranges)

    def names(self, folder: str) -> set[str] | None:
        """As the inner storage's."""
        return self.inner.names(folder)

    def forget(self, path: str) -> bool:
        """As the inner storage's."""
        return self.inner.forget(path)

    def counts(self) -> Counts:
        """As the inner storage's."""
        return self.inner.counts()

    def __str__(self) -> str:
        return str(self.inner)


class Below(Wrapped):
    """A folder of another storage."""

    def __init__(self, inner: Storage, folder: str) -> None:
        super().__init__(inner)
        self._folder = folder

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's."""
        return self.inner.read(f"{self._folder}/{path}", offset, length)

    def size(self, path: str) -> int:
        """As the inner storage's."""
        return self.inner.size(f"{self._folder}/{path}")

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """As the inner storage's."""
        return self.inner.read_many([(f"{self._folder}/{path}", start, size) for path, start, size in ranges])

    def names(self, folder: str) -> set[str] | None:
        """As the inner storage's."""
        return self.inner.names(f"{self._folder}/{folder}" if folder else self._folder)

    def forget(self, path: str) -> bool:
        """As the inner storage's."""
        return self.inner.forget(f"{self._folder}/{path}")

    def __str__(self) -> str:
        return f"{self.inner}/{self._folder}"


class Joined(Storage):
    """Several storages as one, whose limits they share. The paths of each begin with its name."""

    def __init__(self, storages: Mapping[str, Storage]) -> None:
        self._storages = storages
        self.is_remote = any(storage.is_remote for storage in storages.values())
        self.reads_many = all(storage.reads_many for storage in storages.values())

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the named storage's."""
        storage, own = self._of(path)
        return storage.read(own, offset, length)

    def size(self, path: str) -> int:
        """As the named storage's."""
        storage, own = self._of(path)
        return storage.size(own)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """By one call, if all are in one storage."""
        if len({path.partition("/")[0] for path, _, _ in ranges}) != 1:
            return super().read_many(ranges)
        storage, _ = self._of(ranges[0][0])
        return storage.read_many([(self._of(path)[1], start, size) for path, start, size in ranges])

    def names(self, folder: str) -> set[str] | None:
        """As the named storage's."""
        storage, own = self._of(folder)
        return storage.names(own)

    def forget(self, path: str) -> bool:
        """As the named storage's."""
        storage, own = self._of(path)
        return storage.forget(own)

    def counts(self) -> Counts:
        """Their counts together."""
        return sum((storage.counts() for storage in self._storages.values()), Counts())

    def _of(self, path: str) -> tuple[Storage, str]:
        name, _, own = path.partition("/")
        return self._storages[name], own

    def __str__(self) -> str:
        return ", ".join(f"{name}: {storage}" for name, storage in self._storages.items())


_this_thread = threading.local()


@contextmanager
def opening() -> Iterator[None]:
    """Within, a request of this thread that is refused at once is made once more at most.

    Who opens an address may have misspelt it, and waits for the answer. A run that is under way has read from
    there before: it goes on asking (`storage.retry`).
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
