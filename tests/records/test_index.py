"""The index is exact, quick to open, and strict about what it accepts."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_storage import FolderStorage, MemoryStorage

from pcr_exp.errors import RecordError, StorageError
from pcr_exp.records.index import RecordEntry, RecordIndex, dump_index, parse_index
from pcr_exp.records.index_table import read_index
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.protocol import Storage


def make_index(num_records: int = 2, num_groups: int = 3) -> RecordIndex:
    records = [
        RecordEntry(
            f"record-{k:06d}.pcr", 4 + k % 4, tuple(200 * (g + 1) + k for g in range(num_groups)), 90 + k
        )
        for k in range(num_records)
    ]
    return RecordIndex("cars", "train", "pcr", "f00d", num_groups, {"make": ["Audi", "BMW"]}, records)


def test_round_trip() -> None:
    assert parse_index(dump_index(make_index()), "here") == make_index()


@given(
    st.dictionaries(st.text(max_size=5), st.lists(st.text(max_size=5)), max_size=3),
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True),
        st.tuples(
            st.integers(1, 2**20),
            st.integers(26, 2**30),
            st.lists(st.integers(0, 2**40), min_size=3, max_size=3),
            st.sampled_from([None, "f00d"]),
        ),
    ),
)
def test_round_trip_of_anything(
    classes: dict[str, list[str]], rows: dict[str, tuple[int, int, list[int], str | None]]
) -> None:
    records = []
    for file, (num_samples, header_bytes, contents, fingerprint) in rows.items():
        sizes = [header_bytes, *(12 * num_samples + 8 + content for content in contents)]
        ends = tuple(accumulate(sizes))[1:]
        records.append(RecordEntry(file, num_samples, ends, header_bytes, fingerprint))
    index = RecordIndex("d", "val", "pcr", "0", 3, classes, records, "abba", "mine")
    assert parse_index(dump_index(index), "here") == index


def test_byte_counts() -> None:
    index = make_index()
    assert index.num_samples == 9
    assert index.prefix_bytes(1, 2) == 401
    assert index.epoch_bytes(3) == 600 + 601
    assert index.mean_prefix_bytes(3) == 1201 / 9


@pytest.mark.parametrize("group", [0, -1, 4])
def test_a_group_that_is_not_there(group: int) -> None:
    with pytest.raises(
        RecordError, match=rf"group {group} .* pcr records of cars/train have groups 1 to 3\."
    ):
        make_index().prefix_bytes(0, group)


def test_a_group_that_a_baseline_lacks() -> None:
    with pytest.raises(RecordError, match=r"have group 1 only\. Choose one of these"):
        make_index(num_groups=1).prefix_bytes(0, 2)


@pytest.mark.alone
def test_opening_an_index_takes_time_in_proportion_to_its_records() -> None:
    """ImageNet has 1,251, which every process opens. Ten times as many take about ten times as long."""

    def seconds(data: bytes) -> float:
        start = time.perf_counter()
        parse_index(data, "here")
        return time.perf_counter() - start

    few, many = (dump_index(make_index(num_records=num, num_groups=10)) for num in (125, 1250))
    assert min(seconds(many) for _ in range(5)) < 30 * min(seconds(few) for _ in range(5))


def edited(**changes: object) -> bytes:
    return json.dumps(json.loads(dump_index(make_index())) | changes).encode()


def resealed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a changed index with a correct checksum."""
    from pcr_exp.records.index import _seal

    content = json.loads(dump_index(make_index()))
    outer = {name: content.pop(name) for name in ("format", "version", "checksum")}
    change(content)
    return json.dumps(outer | {"checksum": _seal(content)} | content).encode()


def record(**changes: object) -> Callable[[dict[str, Any]], object]:
    """Return a change of fields of the second record."""
    return lambda content: content["records"][1].update(changes)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is damaged: it is not JSON"),
        (dump_index(make_index())[:-9], "is damaged: it is not JSON"),
        (b"\xff\xfe{}", r"is damaged: it is not JSON \('utf-8' codec can't decode"),
        (dump_index(make_index()).decode().encode("utf-16"), "is damaged: it is not JSON"),
        (b"[" * 100_000, r"is damaged: it is not JSON as written by this program \(nested too deeply\)"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'{"version": NaN}', r"is damaged: it is not JSON \(NaN is not a number\)"),
        (b'{"version": 2, "version": 1}', "the key 'version' occurs twice"),
        (b"9" * 5000, "is damaged: it is not JSON"),
        (b"[]", "is not an index of records"),
        (edited(format="something else"), "is not an index of records"),
        (
            edited(version=3),
            r"has format version 3, this program reads version 2\. Use the pcr-exp that wrote it",
        ),
        (edited(version=1), "has format version 1, this program reads version 2"),
        (edited(version="2"), "has format version '2', this program reads"),
        (edited(version=True), "has format version True, this program reads"),
        (edited(version=None), "has format version None, this program reads"),
        (edited(classes={"make": ["BMW", "Audi"]}), "is damaged or was edited"),
        (edited(checksum="0"), "is damaged or was edited"),
        (resealed(lambda content: content.pop("records")), "cannot be used: records is missing"),
        (resealed(lambda content: content.update(records=5)), "cannot be used: records is 5, wanted a list"),
        (resealed(lambda content: content.update(size=5)), "cannot be used: 'size' is not an allowed key"),
        (resealed(lambda content: content.update(num_groups=4)), "has 3 offsets, wanted 4 \\(num_groups\\)"),
        (resealed(lambda content: content.update(num_groups=2**70)), r"num_groups is 118059\d+, wanted"),
        (resealed(lambda content: content.update(dataset=None)), "dataset is None, wanted text"),
        (resealed(lambda content: content.update(minor=-1)), "minor is -1, wanted"),
        (
            resealed(lambda content: content.update(classes={"make": [1]})),
            r"classes\['make'\]\[0\] is 1, wan",
        ),
        (resealed(lambda content: content["records"].append("x")), r"records\[2\] is 'x', wanted an object"),
        (resealed(lambda content: content["records"].append(content["records"][0])), "name a file twice"),
        (
            resealed(record(num_samples=-32)),
            r"records\[1\]\.num_samples is -32, wanted a whole number from 1",
        ),
        (resealed(record(num_samples=10**9)), r"records\[1\]\.num_samples is 1000000000, wanted"),
        (resealed(record(num_samples=2.0)), r"records\[1\]\.num_samples is 2.0, wanted"),
        (resealed(record(num_samples=50)), r"records\[1\]\.group_ends\[0\] is 201, wanted at least 699 for"),
        (
            resealed(record(file="../../etc/passwd")),
            r"records\[1\]\.file is '../../etc/passwd', wanted a bare",
        ),
        (resealed(record(file="/etc/passwd")), r"records\[1\]\.file is '/etc/passwd', wanted a bare name"),
        (resealed(record(file="..")), r"records\[1\]\.file is '..', wanted a bare name"),
        (resealed(record(file="a%2fb")), r"records\[1\]\.file is 'a%2fb', wanted a bare name"),
        (resealed(record(file=["a"])), r"records\[1\]\.file is \['a'\], wanted a bare name"),
        (resealed(record(group_ends=[])), r"records\[1\]\.group_ends has 0 offsets"),
        (resealed(record(group_ends=[500, 400, 900])), r"group_ends\[1\] is 400, wanted at least 5\d\d for"),
        (resealed(record(group_ends=[201, 401, 2**50])), r"group_ends\[2\] is \d+, wanted a whole number"),
        (resealed(record(group_ends=[201, None, 601])), r"group_ends\[1\] is None, wanted a whole number"),
        (resealed(record(group_ends={"0": 1})), r"group_ends is \{'0': 1\}, wanted a list"),
        (resealed(record(header_bytes=0)), r"records\[1\]\.header_bytes is 0, wanted"),
        (resealed(record(header_bytes=300)), r"records\[1\]\.group_ends\[0\] is 201, wanted at least"),
        (resealed(record(fingerprint="x")), r"records\[1\]\.fingerprint is 'x', wanted a key of hexa"),
    ],
)
def test_an_index_that_cannot_be_used(data: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=f"^here/index.json .*{message}"):
        parse_index(data, "here/index.json")


def test_fields_of_a_later_minor_version_are_skipped() -> None:
    def later(content: dict[str, Any]) -> None:
        content.update(minor=7, colours=[1])
        content["records"][0]["mood"] = "good"

    assert parse_index(resealed(later), "here") == make_index()


def test_an_index_without_records_is_one_of_no_images() -> None:
    index = replace(make_index(), records=[])
    parsed = parse_index(dump_index(index), "here")
    assert (parsed, parsed.num_samples, parsed.epoch_bytes(1)) == (index, 0, 0)


def test_an_index_that_is_too_large_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    class Endless(MemoryStorage):
        def size(self, path: str) -> int:  # noqa: ARG002
            return 2**60

        def read(self, path: str, offset: int, length: int) -> bytes:
            assert length <= 2**28 + 1
            return super().read(path, offset, length) + b" " * 1000

    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(RecordError, match="it has 1002 bytes, more than the limit of 1000"),
    ):
        parse_small(Endless({"index.json": b"{}"}))
    assert "index.table has 1152921504606846976 bytes, more than" in caplog.text


def parse_small(storage: MemoryStorage) -> RecordIndex:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcr_exp.records.index.MAX_INDEX_BYTES", 1000)
        return read_index(storage, "")


@given(st.data())
def test_any_changed_byte_is_noticed_or_means_the_same(data: st.DataObject) -> None:
    index = bytearray(dump_index(make_index()))
    index[data.draw(st.integers(0, len(index) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        parsed = parse_index(bytes(index), "here")
    except RecordError:
        return
    assert parsed == make_index()  # only white space changed, for example


@pytest.mark.parametrize(("folder", "path"), [("", "index.json"), ("a/b", "a/b/index.json")])
def test_it_is_read_through_the_storage(folder: str, path: str) -> None:
    storage = MemoryStorage({path: dump_index(make_index())})
    assert read_index(storage, folder) == make_index()


def test_no_index_says_how_to_make_one(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RecordError, match=r"no records can be opened at x/index\.json.*experiments\.prepare"):
        RecordSet(FolderStorage(tmp_path), "x")


def test_a_storage_s_own_error_is_passed_on() -> None:
    class Down(Storage):
        def size(self, path: str) -> int:
            raise StorageError(f"{path}: the server is down.")

        def read(self, path: str, offset: int, length: int) -> bytes:
            raise AssertionError(f"{path} was read at {offset} for {length} though its size is not known")

    with pytest.raises(StorageError, match=r"^x/index\.json: the server is down\.$"):
        read_index(Down(), "x")


def test_an_index_that_nobody_would_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcr_exp.records.index.MAX_INDEX_BYTES", 100)
    with pytest.raises(RecordError, match=r"Raise dataset\.images_per_record"):
        dump_index(make_index())
