"""What an index says of each record: as objects, or as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import RecordError
from pcr_exp.records.strict_json import UnfitError, hex_key, word

TABLE_FILE = "index.table"


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One record. `group_ends[g - 1]` is the offset in the file at which group g ends."""

    file: str
    num_samples: int
    group_ends: tuple[int, ...]
    header_bytes: int
    """The offset at which the header ends."""
    fingerprint: str | None = None
    """That of the encode that made it, if it is not the index's."""


def row_type(file_bytes: int, num_groups: int, fingerprint_bytes: int) -> np.dtype[Any]:
    """A row of `index.table`: file names of `file_bytes`, and so on."""
    return np.dtype(
        [
            ("file", f"S{file_bytes}"),
            ("num_samples", "<u4"),
            ("header_bytes", "<u8"),
            ("group_ends", "<u8", (num_groups,)),
            ("fingerprint", f"S{fingerprint_bytes}"),
        ]
    )


class EntryTable(Sequence[RecordEntry]):
    """The entries of an index that lie in rows; each is made when it is asked for."""

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        """`rows` is [number of records], of `row_type`."""
        self.rows = rows
        # One read of a record looks at its entry several times.
        self._entry = lru_cache(maxsize=1024)(self._make)

    def __reduce__(self) -> tuple[type[EntryTable], tuple[npt.NDArray[Any]]]:
        return EntryTable, (self.rows,)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, record: int) -> RecordEntry: ...
    @overload
    def __getitem__(self, record: slice) -> list[RecordEntry]: ...
    def __getitem__(self, record: int | slice) -> RecordEntry | list[RecordEntry]:
        """A record's entry, or those of several.

        Raises:
            IndexError: there is no such record.
            RecordError: its row names no file that can lie in the folder.
        """
        if isinstance(record, slice):
            return [self[number] for number in range(*record.indices(len(self)))]
        return self._entry(record)

    def _make(self, record: int) -> RecordEntry:
        file, num_samples, header_bytes, group_ends, fingerprint = self.rows[record].item()
        name, key = file.decode("ascii", "replace"), fingerprint.decode("ascii", "replace") or None
        try:
            word(name, "file")
            if key is not None:
                hex_key(key, "fingerprint")
        except UnfitError as error:
            raise RecordError(
                f"{TABLE_FILE} cannot be used, at record {record}: {error}. Remove it: index.json has it all."
            ) from error
        return RecordEntry(name, num_samples, tuple(map(int, group_ends)), header_bytes, key)

    def __iter__(self) -> Iterator[RecordEntry]:
        return map(self._make, range(len(self)))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[number of records] samples in each."""
        return self.rows["num_samples"].astype(np.int64)

    def ends(self, group: int) -> npt.NDArray[np.int64]:
        """[number of records] the offset at which the group ends (1-based)."""
        return self.rows["group_ends"][:, group - 1].astype(np.int64)
