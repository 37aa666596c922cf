"""Reading records: one range read brings all samples of a record at one fidelity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import RecordError
from pcr_exp.records.format import RecordHeader, unpack_group, unpack_header
from pcr_exp.records.index import RangeReader, RecordEntry, RecordIndex, read_index
from pcr_exp.records.jpeg import EOI


@dataclass(frozen=True, slots=True)
class RecordPrefix:
    """All N samples of a record, at the fidelity of one scan group. `labels` are int64 of shape [N]."""

    ids: list[str]
    labels: dict[str, npt.NDArray[np.int64]]
    group: int
    num_bytes: int
    """Bytes that were read for it."""
    _data: bytes
    _bounds: list[list[int]]
    """For every group read, the N + 1 offsets in `_data` that bound its pieces."""
    _ending: bytes

    def __len__(self) -> int:
        return len(self.ids)

    def jpeg(self, i: int, group: int | None = None) -> bytes:
        """Sample i as a JPEG file: its pieces of the groups read, then EOI; a baseline as it was.

        With `group`, only the pieces up to that one: what a shorter prefix of the record would have given.
        """
        if not 0 <= i < len(self.ids):
            raise IndexError(f"sample {i} of a record of {len(self.ids)}")
        view = memoryview(self._data)
        pieces = [view[bounds[i] : bounds[i + 1]] for bounds in self._bounds[:group]]
        return b"".join((*pieces, self._ending))


class RecordSet:
    """A split in one encoding: the folder that holds `index.json` and its records. Thread safe."""

    def __init__(self, storage: RangeReader, folder: str) -> None:
        self.index: RecordIndex = read_index(storage, folder)
        self.folder = folder
        self._storage = storage
        self._ending = b"" if self.index.encoding == "baseline" else EOI

    def describe(self, record: int, group: int) -> str:
        """What `read_prefix` reads, and from where, in words."""
        entry = self.index.records[record]
        num_bytes = self.index.prefix_bytes(record, group)
        return f"{self._path(entry)} ({num_bytes} bytes: scan groups 1 to {group}) from {self._storage}"

    def read_prefix(self, record: int, group: int) -> RecordPrefix:
        """Read groups 1 to `group` of a record, with exactly one read, and verify them.

        Raises:
            RecordError: the records lack the group; the file is cut short, damaged, or not the index's.
            StorageError: the storage could not deliver.
        """
        num_bytes = self.index.prefix_bytes(record, group)
        entry = self.index.records[record]
        path = self._path(entry)
        where = f"record {path}"
        data = self._storage.read(path, 0, num_bytes)
        if len(data) != num_bytes:
            raise RecordError(
                f"{where} is cut short: groups 1 to {group} take {num_bytes} bytes, {len(data)} are there. "
                "Copy the file again from where it was made, or delete the records' folder and encode again."
            )
        header, start = unpack_header(data, where)
        self._check_match(header, entry, where)
        bounds = []
        for number, end in enumerate(entry.group_ends[:group], start=1):
            bounds.append(unpack_group(data, start, end, entry.num_samples, f"group {number} of {where}"))
            start = end
        labels = {name: np.array(values, dtype=np.int64) for name, values in header.labels.items()}
        return RecordPrefix(header.ids, labels, group, num_bytes, data, bounds, self._ending)

    def _path(self, entry: RecordEntry) -> str:
        return f"{self.folder}/{entry.file}" if self.folder else entry.file

    def _check_match(self, header: RecordHeader, entry: RecordEntry, where: str) -> None:
        index = self.index
        pairs = {
            "dataset": (header.dataset, index.dataset),
            "split": (header.split, index.split),
            "encoding": (header.encoding, index.encoding),
            "fingerprint": (header.fingerprint, index.fingerprint),
            "number of groups": (header.num_groups, index.num_groups),
            "number of samples": (header.num_samples, entry.num_samples),
        }
        for name, (found, wanted) in pairs.items():
            if found != wanted:
                raise RecordError(
                    f"{where} does not belong to its index: {name} is {found!r}, the index says {wanted!r}. "
                    "Files of two encodes are mixed: delete the records' folder and encode again."
                )
