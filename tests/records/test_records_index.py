"""The index: exact, quick to open, and particular about what it accepts."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_storage import FolderStorage, MemoryStorage

from pcr_exp.errors import RecordError, StorageError
from pcr_exp.records.index import RecordEntry, RecordIndex, dump_index, parse_index, read_index
from pcr_exp.records.reader import RecordSet


def make_index(num_records: int = 2, num_groups: int = 3) -> RecordIndex:
    records = [
        RecordEntry(f"record-{k:06d}.pcr", 4 + k, tuple(100 * (g + 1) + k for g in range(num_groups)))
        for k in range(num_records)
    ]
    return RecordIndex("cars", "train", "pcr", "f00d", num_groups, {"make": ["Audi", "BMW"]}, records)


def test_round_trip() -> None:
    assert parse_index(dump_index(make_index()), "here") == make_index()


@given(
    st.dictionaries(st.text(max_size=5), st.lists(st.text(max_size=5)), max_size=3),
    st.lists(
        st.tuples(st.text(max_size=5), st.integers(1, 2**40), st.lists(st.integers(1, 2**60), min_size=1))
    ),
)
def test_round_trip_of_anything(
    classes: dict[str, list[str]], rows: list[tuple[str, int, list[int]]]
) -> None:
    records = [RecordEntry(file, num_samples, tuple(ends)) for file, num_samples, ends in rows]
    index = RecordIndex("d", "val", "pcr", "0", 1, classes, records)
    assert parse_index(dump_index(index), "here") == index


def test_byte_counts() -> None:
    index = make_index()
    assert index.num_samples == 9
    assert index.prefix_bytes(1, 2) == 201
    assert index.epoch_bytes(3) == 300 + 301
    assert index.mean_prefix_bytes(3) == 601 / 9


@pytest.mark.parametrize("group", [0, -1, 4])
def test_a_group_that_is_not_there(group: int) -> None:
    with pytest.raises(
        RecordError, match=rf"group {group} .* pcr records of cars/train have groups 1 to 3\."
    ):
        make_index().prefix_bytes(0, group)


def test_a_group_that_a_baseline_lacks() -> None:
    with pytest.raises(RecordError, match=r"have group 1 only\. Choose scan\.group"):
        make_index(num_groups=1).prefix_bytes(0, 2)


@pytest.mark.alone
def test_an_imagenet_sized_index_opens_quickly() -> None:
    data = dump_index(make_index(num_records=1251, num_groups=10))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        parse_index(data, "here")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05


def edited(**changes: object) -> bytes:
    return json.dumps(json.loads(dump_index(make_index())) | changes).encode()


def sealed_without(key: str) -> bytes:
    """An index that never had `key`, with a right checksum."""
    from pcr_exp.records.index import _seal

    content = json.loads(dump_index(make_index()))
    outer = {name: content.pop(name) for name in ("format", "version", "checksum")}
    del content[key]
    return json.dumps(outer | {"checksum": _seal(content)} | content).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is damaged, it is not JSON"),
        (dump_index(make_index())[:-9], "is damaged, it is not JSON"),
        (b"\xff\xfe{}", "is damaged, it is not JSON"),
        (b"[]", "is not an index of records"),
        (edited(format="something else"), "is not an index of records"),
        (
            edited(version=2),
            r"has format version 2, this program reads version 1\. Use the pcr-exp that wrote it",
        ),
        (edited(classes={"make": ["BMW", "Audi"]}), "is damaged or was edited"),
        (edited(checksum="0"), "is damaged or was edited"),
        (sealed_without("records"), r"lacks something that an index has \('records'\)"),
    ],
)
def test_an_index_that_cannot_be_used(data: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=f"^here/index.json {message}"):
        parse_index(data, "here/index.json")


@given(st.data())
def test_any_changed_byte_is_noticed_or_means_the_same(data: st.DataObject) -> None:
    index = bytearray(dump_index(make_index()))
    index[data.draw(st.integers(0, len(index) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        parsed = parse_index(bytes(index), "here")
    except RecordError:
        return
    assert parsed == make_index()  # white space, say


@pytest.mark.parametrize(("folder", "path"), [("", "index.json"), ("a/b", "a/b/index.json")])
def test_it_is_read_through_the_storage(folder: str, path: str) -> None:
    storage = MemoryStorage({path: dump_index(make_index())})
    assert read_index(storage, folder) == make_index()


def test_no_index_says_how_to_make_one(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RecordError, match=r"no records can be opened at x/index\.json.*experiments\.prepare"):
        RecordSet(FolderStorage(tmp_path), "x")


def test_a_storage_s_own_error_is_passed_on() -> None:
    class Down:
        def size(self, path: str) -> int:
            raise StorageError(f"{path}: the server is down.")

        def read(self, path: str, offset: int, length: int) -> bytes:
            raise AssertionError(f"{path} was read at {offset} for {length} though its size is not known")

    with pytest.raises(RecordError, match="the server is down"):
        read_index(Down(), "x")
