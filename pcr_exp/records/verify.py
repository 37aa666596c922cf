"""Whether a folder of records is whole: every file that belongs to it, every byte and every checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pcr_exp.errors import PcrExpError, RecordError
from pcr_exp.records.entries import TABLE_FILE
from pcr_exp.records.format import REMEDY
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.listing import names_in
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.receipts import record_file
from pcr_exp.records.single import SingleImages
from pcr_exp.records.stored_index import path_below, unfit_table
from pcr_exp.records.walk import (
    FOLDERS,
    SUFFIX,
    Found,
    exists,
    find_record,
    no_records,
    open_address,
)
from pcr_exp.storage import RangeReader


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that is not as the encoder left it."""

    what: str
    """In a word or two: `damaged`, `missing`, `not listed`, `not used`."""
    path: str
    reason: str
    num_records: int = 0
    """Records that cannot be read for it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a record. The lists are empty where the record cannot be read at all."""

    record: str
    reason: str
    images: list[tuple[str, int]]
    """(id, scan group) of every piece that does not match its checksum."""


def look_around(root: str) -> tuple[list[Found], list[Fault]]:
    """The records at an address that can be read, and what is wrong with the files around them.

    Where the storage lists no files, as over HTTP, records that no index lists are not found; of an index
    that is missing, those are that it most likely listed.

    Raises:
        RecordError: no record lies there.
        StorageError: the address cannot be opened or listed.
    """
    storage, file = open_address(root)
    if file is not None:
        return [find_record(storage, file)], []
    found: list[Found] = []
    faults: list[Fault] = []
    for folder in FOLDERS:
        names = names_in(storage, folder)
        stored = None if names is None else {name for name in names if name.endswith(SUFFIX)}
        path = path_below(folder, INDEX_FILE)
        if not exists(storage, path):
            num_records = len(_probed(storage, folder) if stored is None else stored)
            if num_records:
                reason = f"of the {_records(num_records)} in this folder, which nothing can open without it."
                faults.append(Fault("missing", path, f"{reason} {REMEDY}", num_records))
            continue
        try:
            records = RecordSet(storage, folder)
        except RecordError as error:
            faults.append(Fault("damaged", path, str(error), len(stored or ())))
            continue
        there, of_folder = _compare(records, stored)
        found.append(Found(records, there))
        faults += of_folder
    if not found and not faults:
        raise no_records(storage)
    return found, faults


def _probed(storage: RangeReader, folder: str) -> list[str]:
    """The first record that every encode writes, if it is there."""
    first = record_file(0)
    return [first] if exists(storage, path_below(folder, first)) else []


def _records(num: int) -> str:
    return "one record" if num == 1 else f"{num} records"


def _compare(records: RecordSet, stored: set[str] | None) -> tuple[list[int], list[Fault]]:
    """Which of the records that an index lists are there, and how the folder's files differ from it."""
    listed = {entry.file: number for number, entry in enumerate(records.index.records)}
    stored = set(listed) if stored is None else stored
    missing = f"{INDEX_FILE} lists it, and it is not there. {REMEDY}"
    more = (
        f"it lies there, and {INDEX_FILE} does not list it, so that nothing reads it. An encode was stopped "
        "or is at work (prepare the records once more), or it was put there (delete it)."
    )
    faults = [Fault("missing", records.path_of(file), missing, 1) for file in listed if file not in stored]
    faults += [Fault("not listed", records.path_of(file), more) for file in sorted(stored - listed.keys())]
    if reason := unfit_table(records.storage, records.folder):
        path = records.path_of(TABLE_FILE)
        said = reason.removeprefix(path).strip(" .")
        slower = f"it {said}: {INDEX_FILE} is read in its place, which takes longer. Delete it."
        faults.append(Fault("not used", path, slower))
    return [number for file, number in listed.items() if file in stored], faults


def verify_records(
    records: RecordSet, numbers: Iterable[int], *, num_threads: int, done: Callable[[int], None]
) -> Iterator[Damage]:
    """Read these records whole, several at a time, and give what is damaged, in order.

    Args:
        records: Of a split.
        numbers: Which.
        num_threads: Records that are read at a time; each is in memory as a whole.
        done: Told the bytes of every record that was looked at.
    """

    def look(number: int) -> Damage | None:
        found = _damage(records, number)
        done(records.index.prefix_bytes(number, records.index.num_groups))
        return found

    with ThreadPoolExecutor(num_threads, "pcr-exp-verify") as pool:
        yield from (damage for damage in pool.map(look, numbers) if damage is not None)


def _damage(records: RecordSet, number: int) -> Damage | None:
    wanted = records.index.prefix_bytes(number, records.index.num_groups)
    try:
        records.read_prefix(number, records.index.num_groups)
        num_bytes = records.storage.size(records.path(number))
        if num_bytes != wanted:
            raise RecordError(f"it has {num_bytes} bytes, {num_bytes - wanted} more than its groups.")
    except PcrExpError as error:
        return Damage(records.path(number), str(error), list(_damaged_pieces(records, number)))
    return None


def _damaged_pieces(records: RecordSet, number: int) -> Iterator[tuple[str, int]]:
    """One by one; none where that cannot be told, without a sound header."""
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
