"""Records by their address: of a split, of a folder of splits, or one file that has lost its index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import overload

import numpy as np

from pcr_exp.config.check import expanded
from pcr_exp.errors import MissingFileError, RecordError, RefusedError
from pcr_exp.records.entries import RecordEntry
from pcr_exp.records.format import HEADER_START, stated_header_bytes, unpack_header
from pcr_exp.records.groups import table_bytes
from pcr_exp.records.index import INDEX_FILE, RecordIndex
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.stored_index import path_below
from pcr_exp.storage import RangeReader
from pcr_exp.storage.opening import opening
from pcr_exp.storage.per_process import PerProcessStorage

SUFFIX = ".pcr"
FOLDERS = (
    "",
    *(f"{split}{name}" for split in ("", "train/", "tune/", "val/") for name in ("pcr", "baseline")),
)
"""Where below an address the records of a split in one encoding may lie."""
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Found:
    """Records of one split in one encoding, and which of them are meant."""

    records: RecordSet
    numbers: Sequence[int]


class ClassNumbers(Sequence[str]):
    """The classes of a label of which only numbers are known, each called by its number.

    They take no more room than the labels that use them, however high their numbers are.
    """

    def __init__(self, labels: Iterable[int]) -> None:
        self.used = sorted(set(labels))
        """Numbers that are labels, rising."""

    def __len__(self) -> int:
        return self.used[-1] + 1 if self.used else 0

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        """Raises IndexError as a list does."""
        chosen = range(len(self))[number]
        return str(chosen) if isinstance(chosen, int) else [str(one) for one in chosen]


def find_records(root: str) -> list[Found]:
    """What lies at an address: a record, an encoding's folder, a split's, or a dataset's with its splits.

    Raises:
        RecordError: nothing does, or an index or header is damaged.
        StorageError: the address cannot be opened.
    """
    storage, file = open_address(root)
    if file is not None:
        return [find_record(storage, file)]
    refusals: list[RefusedError] = []
    found = [
        RecordSet(storage, folder)
        for folder in FOLDERS
        if exists(storage, path_below(folder, INDEX_FILE), refusals)
    ]
    if not found and refusals:
        raise refusals[0]
    if not found:
        raise no_records(storage)
    return [Found(records, range(len(records.index.records))) for records in found]


def open_address(root: str) -> tuple[PerProcessStorage, str | None]:
    """The storage at an address; of a record, that of its folder and the record's file name."""
    root = expanded(root).rstrip("/")
    if not root.endswith(SUFFIX):
        return PerProcessStorage(root), None
    parent, file = root.rpartition("/")[::2]
    return PerProcessStorage(parent or "."), file


def no_records(storage: PerProcessStorage) -> RecordError:
    """No index lies at an address.

    Raises:
        StorageError: it cannot be opened.
    """
    storage.opened  # noqa: B018 (an address that cannot be opened says why)
    return RecordError(
        f"{storage}: there are no records. Wanted a record (.pcr), the folder of a split, which holds "
        f"pcr/{INDEX_FILE}, or of a dataset, which holds train/pcr/{INDEX_FILE}."
    )


def index_of_record(storage: RangeReader, file: str) -> RecordIndex:
    """The index that a record alone would have: a header, then groups that say where they end.

    What classes its labels count is not known: they are called by their numbers.

    Raises:
        RecordError: the file is no record, cut short or damaged.
        StorageError: it cannot be read.
    """
    where, num_bytes = f"record {file}", storage.size(file)
    preamble = storage.read(file, 0, HEADER_START)
    header, start = unpack_header(storage.read(file, 0, min(stated_header_bytes(preamble), num_bytes)), where)
    ends, end = [], start
    for group in range(1, header.num_groups + 1):
        lengths = np.frombuffer(storage.read(file, end, _LENGTH_BYTES * header.num_samples), np.uint8)
        if len(lengths) != _LENGTH_BYTES * header.num_samples:
            raise RecordError(f"group {group} of {where} is cut short: the file ends before its pieces.")
        end += table_bytes(header.num_samples) + int(lengths.view("<u4").sum(dtype=np.int64))
        ends.append(end)
    if end != num_bytes:
        raise RecordError(
            f"{where} is cut short or damaged: it has {num_bytes} bytes, its groups end at {end}."
        )
    classes = {name: ClassNumbers(values) for name, values in header.labels.items()}
    entry = RecordEntry(PurePosixPath(file).name, header.num_samples, tuple(ends), start)
    return RecordIndex(
        dataset=header.dataset,
        split=header.split,
        encoding=header.encoding,
        fingerprint=header.fingerprint,
        num_groups=header.num_groups,
        classes=classes,
        records=[entry],
        images=header.images,
        scans=header.scans,
    )


def find_record(storage: RangeReader, file: str) -> Found:
    """A record of a folder: by its index, if that lists it, and else by what it says itself.

    Raises:
        RecordError, StorageError: as `find_records`.
    """
    if exists(storage, INDEX_FILE):
        records = RecordSet(storage, "")
        for number, entry in enumerate(records.index.records):
            if entry.file == file:
                return Found(records, range(number, number + 1))
    return Found(RecordSet(storage, "", index=index_of_record(storage, file)), range(1))


def exists(storage: RangeReader, path: str, refusals: list[RefusedError] | None = None) -> bool:
    """Whether a file lies there; a refusal is added to `refusals`, as it may mean that there is none."""
    try:
        with opening():
            storage.size(path)
    except MissingFileError:
        return False
    except RefusedError as error:
        if refusals is not None:
            refusals.append(error)
        return False
    return True
