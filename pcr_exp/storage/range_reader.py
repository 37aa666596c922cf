"""The seam of this room: bytes come in by ranges, from wherever they lie."""

from __future__ import annotations

from typing import Protocol


class RangeReader(Protocol):
    """Where bytes come from. Paths are relative to the storage's root."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on; fewer at the end of the file."""
        ...

    def size(self, path: str) -> int:
        """Bytes in the file."""
        ...
