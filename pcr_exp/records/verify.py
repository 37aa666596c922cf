"""Reading every byte of records and comparing every checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pcr_exp.errors import PcrExpError, RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a record. The lists are empty where the record cannot be read at all."""

    record: str
    reason: str
    images: list[tuple[str, int]]
    """(id, scan group) of every piece that does not match its checksum."""


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
