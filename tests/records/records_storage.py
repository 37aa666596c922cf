"""Storages from which tests read records."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.storage.protocol import Storage


class FolderStorage(Storage):
    """Reads ranges from a folder, and notes each read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reads: list[tuple[str, int, int]] = []

    def read(self, path: str, offset: int, length: int) -> bytes:
        self.reads.append((path, offset, length))
        with (self.root / path).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size


class MemoryStorage(Storage):
    """Reads ranges from a dict of files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.files[path][offset : offset + length]

    def size(self, path: str) -> int:
        return len(self.files[path])
