"""The protocol of storages: range reads; and a folder of a storage, as a storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class RangeReader(Protocol):
    """Where bytes come from. Paths are relative to the storage's root."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on; fewer at the end of the file."""
        ...

    def size(self, path: str) -> int:
        """Bytes in the file."""
        ...


@dataclass(frozen=True, slots=True)
class StorageBelow:
    """What lies below `folder` in `inner`."""

    inner: RangeReader
    folder: str

    def read(self, path: str, offset: int, length: int) -> bytes:
        """As the inner storage's `read`."""
        return self.inner.read(f"{self.folder}/{path}", offset, length)

    def size(self, path: str) -> int:
        """As the inner storage's `size`."""
        return self.inner.size(f"{self.folder}/{path}")

    def __str__(self) -> str:
        return f"{self.inner}/{self.folder}"
