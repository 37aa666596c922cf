"""The table of a large index has the contents of `index.json`, and is used only with that file."""

from __future__ import annotations

import logging
import pickle
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_storage import MemoryStorage

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import RecordError
from pcr_exp.records import index_table as stored_index
from pcr_exp.records.index import EntryTable, RecordEntry, RecordIndex, dump_index
from pcr_exp.records.index_table import HEAD_BYTES_OF_INDEX, dump_table, parse_table, read_index, write_index
from pcr_exp.records.strict_json import UnfitError
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage

NUM_GROUPS = 3
CLASSES = {"make": ["Audi", "BMW"]}
FILES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True)
ROWS = st.tuples(
    st.integers(1, 2**20),
    st.integers(26, 2**30),
    st.lists(st.integers(0, 2**40), min_size=NUM_GROUPS, max_size=NUM_GROUPS),
    st.sampled_from([None, "f00d", 64 * "a"]),
)


def entry_of(file: str, row: tuple[int, int, list[int], str | None]) -> RecordEntry:
    num_samples, header_bytes, contents, fingerprint = row
    ends, end = [], header_bytes
    for content in contents:
        end += 12 * num_samples + 8 + content
        ends.append(end)
    return RecordEntry(file, num_samples, tuple(ends), header_bytes, fingerprint)


def index_of(num_records: int) -> RecordIndex:
    rows = {f"record-{k:06d}.pcr": (4 + k % 4, 90 + k, [k, 2 * k, 0], None) for k in range(num_records)}
    records = [entry_of(file, row) for file, row in rows.items()]
    return RecordIndex("cars", "train", "pcr", "f00d", NUM_GROUPS, CLASSES, records, "abba", "mine")


def parsed(index: RecordIndex, table: bytes | None = None) -> RecordIndex:
    data = dump_index(index)
    return parse_table(table or dump_table(index, data), len(data), data[:HEAD_BYTES_OF_INDEX], "here")


@given(st.dictionaries(FILES, ROWS, max_size=6))
def test_a_table_says_what_the_index_says(rows: dict[str, tuple[int, int, list[int], str | None]]) -> None:
    index = replace(index_of(0), records=[entry_of(file, row) for file, row in rows.items()])
    found = parsed(index)
    assert list(found.records) == index.records == list(found.records[:])
    assert replace(found, records=[]) == replace(index, records=[])
    assert found.sizes.tolist() == index.sizes.tolist() == [entry.num_samples for entry in index.records]
    for group in range(1, NUM_GROUPS + 1):
        ends = [entry.group_ends[group - 1] for entry in index.records]
        assert found.prefixes_bytes(group).tolist() == index.prefixes_bytes(group).tolist() == ends
    assert found.num_samples == index.num_samples
    assert dump_index(found) == dump_index(index)


def test_entries_are_a_sequence() -> None:
    index = index_of(5)
    found = parsed(index).records
    assert isinstance(found, EntryTable) and len(found) == 5
    assert found[-1] == index.records[-1] and found[1:3] == index.records[1:3]
    assert list(pickle.loads(pickle.dumps(found))) == index.records, "spawned workers are sent it"
    with pytest.raises(IndexError):
        found[5]


def damaged_anywhere(table: bytes, byte: int) -> bytes:
    changed = bytearray(table)
    changed[byte] ^= 1
    return bytes(changed)


def test_no_damaged_byte_goes_unseen() -> None:
    index = index_of(2)
    table = dump_table(index, dump_index(index))
    for byte in range(len(table)):
        with pytest.raises(UnfitError):
            parsed(index, damaged_anywhere(table, byte))
    for end in range(1, len(table)):
        with pytest.raises(UnfitError):
            parsed(index, table[:end])


def test_an_index_of_another_length_is_refused() -> None:
    index = index_of(2)
    data = dump_index(index)
    with pytest.raises(UnfitError, match=r"here was made from a different index\.json"):
        parse_table(dump_table(index, data), len(data) + 1, data[:HEAD_BYTES_OF_INDEX], "here")


def resealed(change: Callable[[bytearray], None]) -> bytes:
    """Return a changed table of two records with a correct checksum."""
    import xxhash

    index = index_of(2)
    table = bytearray(dump_table(index, dump_index(index)))
    change(table)
    struct.pack_into("<Q", table, 48, xxhash.xxh3_64_intdigest(bytes(table[:48] + table[56:])))
    return bytes(table)


ROW_BYTES = 17 + 4 + 8 + 8 * NUM_GROUPS + 1


def set_row(offset: int, layout: str, value: int | bytes) -> Callable[[bytearray], None]:
    """Return a change of the value at `offset` bytes into the last row."""
    return lambda table: struct.pack_into(layout, table, len(table) - ROW_BYTES + offset, value)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda table: struct.pack_into("<I", table, 8, 3), "has format version 3, wanted 2"),
        (lambda table: struct.pack_into("<I", table, 12, 7), "is damaged: it is not JSON"),
        (lambda table: struct.pack_into("<Q", table, 32, 3), "wanted 3 rows of"),
        (lambda table: struct.pack_into("<I", table, 40, 2**31), "has file names of 2147483648 bytes"),
        (lambda table: struct.pack_into("<I", table, 40, 0), "file names of 0 bytes .* wanted 1 to 200"),
        (lambda table: struct.pack_into("<I", table, 44, 2**32 - 1), "fingerprints of 4294967295, wanted"),
        (
            lambda table: struct.pack_into("<I", table, 44, 0),
            "fingerprints of 0, wanted 1 to 200 and 1 to 64",
        ),
        (lambda table: struct.pack_into("<Q", table, 32, 2**64 - 1), "wanted 18446744073709551615 rows"),
        (set_row(17, "<I", 0), "has impossible values in row 1"),
        (set_row(17, "<I", 2**20 + 1), "has impossible values in row 1"),
        (set_row(21, "<Q", 25), "has impossible values in row 1"),
        (set_row(21, "<Q", 2**63), "has impossible values in row 1"),
        (set_row(29, "<Q", 3), "has impossible values in row 1"),
        (set_row(29 + 16, "<Q", 2**48 + 1), "has impossible values in row 1"),
    ],
)
def test_what_no_index_can_say_is_refused(change: Callable[[bytearray], None], message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        parsed(index_of(2), resealed(change))


@pytest.mark.parametrize("offset, value", [(0, b"../../etc/passwd"), (0, b"\xff"), (ROW_BYTES - 1, b"g")])
def test_a_row_of_a_file_elsewhere_is_refused_when_it_is_looked_at(offset: int, value: bytes) -> None:
    found = parsed(index_of(2), resealed(set_row(offset, f"{len(value)}s", value)))
    assert found.records[0] == index_of(2).records[0]
    with pytest.raises(RecordError, match=r"index\.table cannot be used, at record 1: .* Remove it"):
        found.records[1]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordIndex:
    """An index that counts as large, in `tmp_path / "pcr"`."""
    monkeypatch.setattr(stored_index, "LARGE_BYTES", 1000)
    (tmp_path / "pcr").mkdir()
    write_index(tmp_path / "pcr", index_of(10))
    return index_of(10)


@pytest.mark.parametrize("slow", [False, True])
def test_a_large_index_is_not_parsed(large: RecordIndex, tmp_path: Path, slow: bool) -> None:
    limits = StorageConfig(name="it", bandwidth_mib_per_s=1000 if slow else None)
    found = read_index(open_storage(str(tmp_path), limits), "pcr")
    assert isinstance(found.records, EntryTable) and list(found.records) == large.records
    assert found.num_samples == large.num_samples


def test_a_table_that_is_cut_short_while_it_is_in_use_kills_nobody(
    large: RecordIndex, tmp_path: Path
) -> None:
    """This runs in a process of its own, because a signal would end it."""
    program = f"""
    import os
    from pcr_exp.records import index_table as stored_index
    from pcr_exp.storage.local import LocalStorage
    stored_index.LARGE_BYTES = 1000
    index = stored_index.read_index(LocalStorage({str(tmp_path)!r}), "pcr")
    os.truncate({str(tmp_path / "pcr" / "index.table")!r}, 100)
    print([record.num_samples for record in index.records], index.num_samples, type(index.records).__name__)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    wanted = [record.num_samples for record in large.records]
    assert (done.returncode, done.stdout) == (0, f"{wanted} {large.num_samples} EntryTable\n"), done.stderr


def test_a_table_is_read_through_any_storage(large: RecordIndex, tmp_path: Path) -> None:
    files = {f"s/{path.name}": path.read_bytes() for path in (tmp_path / "pcr").iterdir()}
    assert files.keys() == {"s/index.json", "s/index.table"}
    found = read_index(MemoryStorage(files), "s")
    assert isinstance(found.records, EntryTable) and list(found.records) == large.records


def test_a_table_of_another_index_is_left_alone(
    large: RecordIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, other = tmp_path / "pcr", replace(large, fingerprint="beef")
    (folder / "index.json").write_bytes(dump_index(other))  # as a program without tables does
    with caplog.at_level(logging.WARNING):
        assert read_index(LocalStorage(tmp_path), "pcr") == other
    assert "was made from a different index.json" in caplog.text and "is parsed instead" in caplog.text


def test_an_empty_table_is_left_alone(
    large: RecordIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pcr" / "index.table").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert read_index(LocalStorage(tmp_path), "pcr") == large
    assert "index.table is not a table of records. It is ignored" in caplog.text


def test_a_small_index_has_no_table(large: RecordIndex, tmp_path: Path) -> None:
    assert (tmp_path / "pcr" / "index.table").exists() and len(large.records) > 1
    write_index(tmp_path / "pcr", index_of(1))
    assert [path.name for path in (tmp_path / "pcr").iterdir()] == ["index.json"]
    assert read_index(LocalStorage(tmp_path), "pcr") == index_of(1)


def test_large_records_without_a_table_are_read_as_ever(large: RecordIndex, tmp_path: Path) -> None:
    (tmp_path / "pcr" / "index.table").unlink()
    assert read_index(LocalStorage(tmp_path), "pcr") == large
