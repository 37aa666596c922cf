"""Extending a prefix in memory by further groups reads only the missing bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_storage import MemoryStorage

from pcr_exp.errors import RecordError
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.reader import RecordSet
from tests.records.test_format import Contents, records, small, write


class NotingStorage(MemoryStorage):
    """Notes (offset, length) of every read of a record."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.reads: list[tuple[int, int]] = []

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path.endswith(".pcr"):
            self.reads.append((offset, length))
        return super().read(path, offset, length)


def content(prefix: RecordPrefix) -> tuple[int, int, list[bytes]]:
    return prefix.group, prefix.num_bytes, [prefix.encoded(i) for i in range(len(prefix))]


@given(records(), st.data())
def test_a_prefix_in_steps_is_the_prefix_at_once(contents: Contents, data: st.DataObject) -> None:
    header, samples = contents
    steps = sorted(data.draw(st.sets(st.integers(1, header.num_groups), min_size=1)))
    storage = NotingStorage(write(header, samples))
    record_set = RecordSet(storage, "s")
    prefix = record_set.read_prefix(0, steps[0])
    first = content(prefix)
    whole = prefix
    for after, group in pairwise(steps):
        whole = whole.extended(record_set.read_extension(0, after, group))
    ends = record_set.index.records[0].group_ends
    wanted = [0, *(ends[group - 1] for group in steps)]
    assert storage.reads == [(a, b - a) for a, b in pairwise(wanted)]
    assert content(whole) == content(record_set.read_prefix(0, steps[-1]))
    assert content(prefix) == first, "it stays as it is"


def test_an_extension_is_of_the_groups_that_follow() -> None:
    record_set = RecordSet(MemoryStorage(write(*small())), "s")
    prefix = record_set.read_prefix(0, 1)
    with pytest.raises(ValueError, match="groups from 3 on do not continue a prefix of 1 groups"):
        prefix.extended(record_set.read_extension(0, 2, 3))


@pytest.mark.parametrize(("after", "group"), [(0, 2), (0, 0), (3, 1)])
def test_what_extends_nothing_is_refused(after: int, group: int) -> None:
    record_set = RecordSet(MemoryStorage(write(*small())), "s")
    with pytest.raises(ValueError, match=f"groups {after + 1} to {group} do not extend a prefix"):
        record_set.read_extension(0, after, group)


def test_nothing_is_read_for_what_is_there() -> None:
    storage = NotingStorage(write(*small()))
    record_set = RecordSet(storage, "s")
    prefix = record_set.read_prefix(0, 2)
    assert content(prefix.extended(record_set.read_extension(0, 2, 2))) == content(prefix)
    assert len(storage.reads) == 1


def test_groups_that_are_not_there_are_refused() -> None:
    record_set = RecordSet(MemoryStorage(write(*small())), "s")
    with pytest.raises(RecordError, match="scan group 4 was asked for"):
        record_set.read_extension(0, 1, 4)


def test_damage_in_an_extension_is_noticed_and_named() -> None:
    files = write(*small())
    whole = files["s/record-000000.pcr"]
    files["s/record-000000.pcr"] = whole[:-1] + bytes([whole[-1] ^ 1])
    record_set = RecordSet(MemoryStorage(files), "s")
    assert len(record_set.read_prefix(0, 2)) == 2
    with pytest.raises(RecordError, match=r"group 3 of record s/record-000000\.pcr is damaged"):
        record_set.read_extension(0, 2, 3)
    files["s/record-000000.pcr"] = whole[:-1]
    with pytest.raises(RecordError, match=r"\.pcr is cut short: groups 2 to 3 take \d+ bytes, \d+ are there"):
        record_set.read_extension(0, 1, 3)


def test_errors_can_say_what_is_read() -> None:
    record_set = RecordSet(MemoryStorage(write(*small())), "s")
    ends = record_set.index.records[0].group_ends
    text = record_set.describe(0, 3, after=1)
    assert f"({ends[2] - ends[0]} bytes: scan groups 2 to 3)" in text
