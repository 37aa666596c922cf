"""Find and verify the records at an address: a split, a folder of splits, or one file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import overload

import numpy as np

from pcr_exp.config.check import expanded
from pcr_exp.errors import MissingFileError, PcrExpError, RecordError, RefusedError
from pcr_exp.records.fields import field_records
from pcr_exp.records.format import HEADER_START, REMEDY, stated_header_bytes, unpack_header
from pcr_exp.records.groups import table_bytes
from pcr_exp.records.index import INDEX_FILE, TABLE_FILE, RecordEntry, RecordIndex
from pcr_exp.records.index_table import path_below, unfit_table
from pcr_exp.records.markers import FIELDS_SUFFIX, record_file
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.storage.open import PerProcessStorage
from pcr_exp.storage.protocol import Storage, opening

SUFFIX = ".pcr"

FOLDERS = (
    "",
    *(f"{split}{name}" for split in ("", "train/", "tune/", "val/") for name in ("pcr", "baseline")),
)
"""Folders below an address that may contain the records of a split in one encoding."""

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Found:
    """Records of one split in one encoding, and the numbers of those selected."""

    records: RecordSet
    numbers: Sequence[int]


class ClassNumbers(Sequence[str]):
    """Class names of a label whose names are unknown: each class is named by its number.

    Memory use depends on the labels in use, not on the highest class number.
    """

    def __init__(self, labels: Iterable[int]) -> None:
        self.used = sorted(set(labels))
        """Class numbers in use, ascending."""

    def __len__(self) -> int:
        return self.used[-1] + 1 if self.used else 0

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        """Return names by class number; raises IndexError as a list does."""
        chosen = range(len(self))[number]
        return str(chosen) if isinstance(chosen, int) else [str(one) for one in chosen]


def find_records(root: str) -> list[Found]:
    """Return the records at an address: a record file, or the folder of an encoding, split or dataset.

    Raises:
        RecordError: there are no records, or an index or header is damaged.
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
    """Return the storage at an address and None; for a record, its folder's storage and its file name."""
    root = expanded(root).rstrip("/")
    if not root.endswith(SUFFIX):
        return PerProcessStorage(root), None
    parent, file = root.rpartition("/")[::2]
    return PerProcessStorage(parent or "."), file


def no_records(storage: PerProcessStorage) -> RecordError:
    """Return the error for an address without an index."""
    return RecordError(
        f"{storage}: there are no records. Wanted a record (.pcr), the folder of a split (with "
        f"pcr/{INDEX_FILE}), or the folder of a dataset (with train/pcr/{INDEX_FILE})."
    )


def index_of_record(storage: Storage, file: str) -> RecordIndex:
    """Build the index of a single record from its header and the piece lengths of its groups.

    A record does not contain the names of its classes, so their numbers stand in.

    Raises:
        RecordError: the file is not a record, is cut short or is damaged.
        StorageError: the file cannot be read.
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
    shared = ("dataset", "split", "encoding", "fingerprint", "num_groups", "images", "scans")
    stated = {name: getattr(header, name) for name in shared}
    return RecordIndex(**stated, classes=classes, records=[entry])


def find_record(storage: Storage, file: str) -> Found:
    """Find a record of a folder, from the folder's index if that lists it, else from the record itself.

    Raises:
        RecordError, StorageError: as in `find_records`.
    """
    if exists(storage, INDEX_FILE):
        records = RecordSet(storage, "")
        for number, entry in enumerate(records.index.records):
            if entry.file == file:
                return Found(records, range(number, number + 1))
    return Found(RecordSet(storage, "", index=index_of_record(storage, file)), range(1))


def exists(storage: Storage, path: str, refusals: list[RefusedError] | None = None) -> bool:
    """Return whether a file exists. A refused request counts as missing and is added to `refusals`."""
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


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that is not as the encoder left it."""

    what: str
    """Kind of fault: `damaged`, `missing`, `not listed`, `not used`."""
    path: str
    reason: str
    num_records: int = 0
    """Number of records that cannot be read because of it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged record. `images` is empty if no single pieces are at fault, or the header is unreadable."""

    record: str
    reason: str
    images: list[tuple[str, int | str]]
    """(image id, scan group or field name) of every piece that does not match its checksum."""


def find_records_and_faults(root: str) -> tuple[list[Found], list[Fault]]:
    """Return the readable records at an address, and the faults of the files around them.

    If the storage cannot list files, as over HTTP, records that no index lists are not found. A missing index
    is then noticed only if the folder contains record 0.

    Raises:
        RecordError: there are no records at the address.
        StorageError: the address cannot be opened or listed.
    """
    storage, file = open_address(root)
    if file is not None:
        return [find_record(storage, file)], []
    found: list[Found] = []
    faults: list[Fault] = []
    refusals: list[RefusedError] = []
    for folder in FOLDERS:
        names = storage.names(folder)
        suffixes = SUFFIX, FIELDS_SUFFIX
        stored = None if names is None else {name for name in names if name.endswith(suffixes)}
        path = path_below(folder, INDEX_FILE)
        if not exists(storage, path, refusals):
            num_records = len(_probed(storage, folder) if stored is None else _only_records(stored))
            if num_records:
                reason = f"without it, nothing can open the {_records(num_records)} in this folder."
                faults.append(Fault("missing", path, f"{reason} {REMEDY}", num_records))
            continue
        try:
            records = RecordSet(storage, folder)
        except RecordError as error:
            faults.append(Fault("damaged", path, str(error), len(_only_records(stored or ()))))
            continue
        there, of_folder = _compare(records, stored)
        found.append(Found(records, there))
        faults += of_folder
    if not found and not faults:
        raise refusals[0] if refusals else no_records(storage)
    return found, faults


def _only_records(files: Iterable[str]) -> list[str]:
    return [file for file in files if file.endswith(SUFFIX)]


def _probed(storage: Storage, folder: str) -> list[str]:
    """Return the file name of record 0, which an encode writes first, if it exists."""
    first = record_file(0)
    return [first] if exists(storage, path_below(folder, first)) else []


def _records(num: int) -> str:
    return "one record" if num == 1 else f"{num} records"


def _compare(records: RecordSet, stored: set[str] | None) -> tuple[list[int], list[Fault]]:
    """Return the numbers of listed records that exist, and how the folder's files differ from the index."""
    listed = {entry.file: number for number, entry in enumerate(records.index.records)}
    every = {file.file for entry in records.index.records for file in entry.files}
    stored = every if stored is None else stored
    missing = f"{INDEX_FILE} lists it, but it does not exist. {REMEDY}"
    more = (
        f"{INDEX_FILE} does not list it, so nothing reads it. Either an encode was stopped or is still "
        "running (prepare the records again), or someone put the file there (delete it)."
    )
    faults = [Fault("missing", records.path_of(file), missing, 1) for file in listed if file not in stored]
    faults += [Fault("not listed", records.path_of(file), more) for file in sorted(stored - every)]
    if reason := unfit_table(records.storage, records.folder):
        path = records.path_of(TABLE_FILE)
        said = reason.removeprefix(path).strip(" .")
        slower = f"it {said}. {INDEX_FILE} is read instead, which takes longer. Delete it."
        faults.append(Fault("not used", path, slower))
    return [number for file, number in listed.items() if file in stored], faults


def verify_records(
    records: RecordSet, numbers: Iterable[int], *, num_threads: int, done: Callable[[int], None]
) -> Iterator[Damage]:
    """Read records in full, several at a time, and yield the damage found, in order.

    Args:
        records: Records of one split.
        numbers: Numbers of the records to verify.
        num_threads: Number of records read at a time; each is held in memory in full.
        done: Called with the size in bytes of every record that was checked.
    """
    fields = field_records(records) if records.index.fields else None
    names = sorted(records.index.fields)

    def verify(number: int) -> list[Damage]:
        found = [_damage(records, number)]
        if fields is not None and (beside := _damage(fields, number)) is not None:
            images: list[tuple[str, int | str]] = [
                (id_, names[int(group) - 1]) for id_, group in beside.images
            ]
            found.append(replace(beside, images=images))
        elif fields is not None and found == [None] and _ids(fields, number) != _ids(records, number):
            reason = f"it holds fields of different images from those in the record next to it. {REMEDY}"
            found.append(Damage(fields.path(number), reason, []))
        done(stored_bytes(records.index, number))
        return [damage for damage in found if damage is not None]

    with ThreadPoolExecutor(num_threads, "pcr-exp-verify") as pool:
        yield from chain.from_iterable(pool.map(verify, numbers))


def _ids(records: RecordSet, number: int) -> list[str]:
    return SingleImages(records).header(number).ids


def stored_bytes(index: RecordIndex, number: int) -> int:
    """Size in bytes of a record and its file of fields."""
    return sum(file.group_ends[-1] for file in index.records[number].files)


def _damage(records: RecordSet, number: int) -> Damage | None:
    wanted = records.index.prefix_bytes(number, records.index.num_groups)
    try:
        records.read_prefix(number, records.index.num_groups)
        num_bytes = records.storage.size(records.path(number))
        if num_bytes != wanted:
            raise RecordError(f"it has {num_bytes} bytes, {num_bytes - wanted} more than its groups take.")
    except PcrExpError as error:
        return Damage(records.path(number), str(error), list(_damaged_pieces(records, number)))
    return None


def _damaged_pieces(records: RecordSet, number: int) -> Iterator[tuple[str, int | str]]:
    """Yield (image id, group) of each damaged piece; nothing if the header is unreadable."""
    try:
        images = SingleImages(records)
        header = images.header(number)
    except PcrExpError:
        return
    for group in range(1, records.index.num_groups + 1):
        for i, name in enumerate(header.ids):
            try:
                images.read_piece(number, i, group)
            except PcrExpError:
                yield name, group
