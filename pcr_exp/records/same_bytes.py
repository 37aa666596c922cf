"""Whether image files are still those that records hold, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pcr_exp.records.reader import RecordSet
from pcr_exp.records.receipts import read_rejected
from pcr_exp.records.sources import SourceImage


def of_other_bytes(folder: Path, paths: Mapping[str, Path], images: Mapping[str, SourceImage]) -> list[str]:
    """Ids of those files that differ from what the records in `folder` hold of them, sorted.

    Reads the original bytes in the baseline records, and the files. A file that records do not hold (it was
    rejected) counts as different: it may be accepted now.

    Args:
        folder: holds the splits.
        paths: the files to compare, by id.
        images: says which split each is in.

    Raises:
        RecordError: the records are damaged.
        OSError: they cannot be read.
    """
    other = []
    storage = _Folder(folder)
    for split in sorted({images[id_].split for id_ in paths}):
        wanted = {id_ for id_ in paths if images[id_].split == split}
        records = RecordSet(storage, f"{split}/baseline")
        for number in range(len(records.index.records)):
            if not wanted:
                break
            prefix = records.read_prefix(number, 1)
            for i, id_ in enumerate(prefix.ids):
                if id_ in wanted:
                    wanted.remove(id_)
                    if not _holds(paths[id_], prefix.encoded(i)):
                        other.append(id_)
        other += wanted & {id_ for id_, _ in read_rejected(folder / split)}
    return sorted(other)


@dataclass(frozen=True, slots=True)
class _Folder:
    root: Path

    def read(self, path: str, offset: int, length: int) -> bytes:
        with (self.root / path).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False
