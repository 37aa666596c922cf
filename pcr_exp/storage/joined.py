"""Several storages as one: what wraps it, such as a throttle, is then shared by all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pcr_exp.storage.protocol import Range, Storage


class JoinedStorage(Storage):
    """The paths of each storage begin with its name."""

    def __init__(self, storages: Mapping[str, Storage]) -> None:
        self._storages = storages
        self.is_remote = any(storage.is_remote for storage in storages.values())
        self.reads_many = all(storage.reads_many for storage in storages.values())

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As that of its storage."""
        storage, own = self._of(path)
        return storage.read(own, offset, length)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """By one call, if all are of one storage."""
        if len({path.partition("/")[0] for path, _, _ in ranges}) != 1:
            return super().read_many(ranges)
        storage, _ = self._of(ranges[0][0])
        return storage.read_many([(self._of(path)[1], start, size) for path, start, size in ranges])

    def size(self, path: str) -> int:
        """As that of its storage."""
        storage, own = self._of(path)
        return storage.size(own)

    def names(self, folder: str) -> set[str] | None:
        """As that of its storage."""
        storage, own = self._of(folder)
        return storage.names(own)

    def _of(self, path: str) -> tuple[Storage, str]:
        name, _, own = path.partition("/")
        return self._storages[name], own

    def __str__(self) -> str:
        return ", ".join(f"{name}: {storage}" for name, storage in self._storages.items())
