"""Where bytes lie and how fast they come: range reads (`RangeReader`), local and remote, throttled, counted.

`open_storage` makes one from an address and `StorageConfig`; a throttle is a wrapper, and every process of a
host shares its bucket.
"""

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
