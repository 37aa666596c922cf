"""A folder of a storage, as a storage."""

from __future__ import annotations

from dataclasses import dataclass

from pcr_exp.storage import RangeReader


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
