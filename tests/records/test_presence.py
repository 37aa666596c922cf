"""Missing or short records and paths that are no regular files are reported at once, in little memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from numbered_records import encode_numbered, square_crops
from storage_http_server import range_server

import pcr_exp
from pcr_exp.errors import PcrExpError, RecordError, StorageError
from pcr_exp.records import presence
from pcr_exp.records.format import MAX_SAMPLES
from pcr_exp.records.groups import table_bytes
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.records.index_table import read_index, write_index
from pcr_exp.records.presence import require_files
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.reuse import StoredImages
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """Six images in three records, in both encodings."""
    return encode_numbered(square_crops([(0, i) for i in range(6)], 32, 80), tmp_path, images_per_record=2)


def claiming(num_records: int, num_samples: int) -> RecordIndex:
    """Return an index that is consistent in itself."""
    end = 100 + table_bytes(num_samples)
    records = [
        RecordEntry(f"record-{number:06d}.pcr", num_samples, (end,), 100) for number in range(num_records)
    ]
    return RecordIndex("d", "train", "baseline", "f00d", 1, {"make": ["a", "b"]}, records, "abba")


def test_a_thousand_million_images_are_not_laid_out_for_a_few_kilobytes(tmp_path: Path) -> None:
    (tmp_path / "baseline").mkdir()
    write_index(tmp_path / "baseline", claiming(1000, MAX_SAMPLES))
    assert (tmp_path / "baseline" / "index.json").stat().st_size < 250_000
    began_s = time.process_time()
    with pytest.raises(
        RecordError, match=r"record-000000\.pcr does not exist, but the index next to it lists"
    ):
        pcr_exp.open(tmp_path, scan="baseline")
    assert time.process_time() - began_s < 2, "an order of them takes ten minutes"


def test_a_file_that_is_shorter_than_its_index_says_is_told_before_training(split: Path) -> None:
    pcr_exp.open(split)
    record = split / "pcr" / "record-000001.pcr"
    whole = record.read_bytes()
    index = read_index(LocalStorage(split), "pcr")
    record.write_bytes(whole[: index.records[1].group_ends[0]])
    require_files(RecordSet(LocalStorage(split), "pcr"))  # a copied prefix, which may be trained on
    record.write_bytes(whole[: index.records[1].group_ends[0] - 1])
    with pytest.raises(
        RecordError, match=r"record-000001\.pcr has \d+ bytes, but its index says \d+ up to the end"
    ):
        pcr_exp.open(split)
    record.unlink()
    with pytest.raises(RecordError, match=r"record-000001\.pcr does not exist, but the index"):
        pcr_exp.open(split)


def test_of_many_records_some_at_random_are_looked_at(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_MAX_LOCAL", 2)
    (split / "pcr" / "record-000002.pcr").unlink()
    records = RecordSet(LocalStorage(split), "pcr")
    outcomes = set()
    for _ in range(200):
        try:
            require_files(records)
            outcomes.add("passed")
        except RecordError:
            outcomes.add("missed")
    assert outcomes == {"passed", "missed"}, "two of three records each time, and never the same two"


def test_over_a_network_a_few_sizes_are_asked_for(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'pcr-exp[remote]'")
    monkeypatch.setattr(presence, "_MAX_REMOTE", 2)
    with range_server(split) as server:
        pcr_exp.open(server.url)
        assert sum(path.endswith(".pcr") for method, path, _ in server.requests if method == "HEAD") == 2
        for record in (split / "pcr").glob("*.pcr"):
            record.unlink()
        with pytest.raises(RecordError, match=r"does not exist, but the index next to it lists it"):
            pcr_exp.open(server.url)


def test_what_lies_elsewhere_is_looked_at_there(split: Path, tmp_path: Path) -> None:
    records = RecordSet(LocalStorage(split), "pcr")
    require_files(records, CountingStorage(LocalStorage(split)))
    with pytest.raises(RecordError, match=f"^{tmp_path / 'elsewhere'}/pcr/record-000000.pcr does not exist"):
        require_files(records, LocalStorage(tmp_path / "elsewhere"))


def in_place_of(path: Path, kind: str) -> None:
    if path.exists():
        path.unlink()
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")


KINDS = {"a FIFO": "is a FIFO, not a regular", "a folder": "Is a directory", "/dev/zero": "is a device or"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_neither_blocks_nor_fills_the_memory(split: Path, kind: str) -> None:
    storage, record = LocalStorage(split), split / "pcr" / "record-000001.pcr"
    records = RecordSet(storage, "pcr")
    in_place_of(record, kind)
    path = "pcr/record-000001.pcr"
    for attempt in (
        lambda: storage.read(path, 0, 10),
        lambda: storage.size(path),
        lambda: storage.read_many([("pcr/record-000000.pcr", 0, 10), (path, 0, 10)]),
        lambda: records.read_prefix(1, 1),
        lambda: pcr_exp.open(split),
        lambda: StoredImages(split.parent).groups("000.jpg", b""),
    ):
        with pytest.raises(PcrExpError, match=KINDS[kind]):
            attempt()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", [False, True])
def test_nor_does_what_is_no_index(
    split: Path, kind: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        from pcr_exp.records import index_table as stored_index

        wanted = read_index(LocalStorage(split), "pcr")
        monkeypatch.setattr(stored_index, "LARGE_BYTES", 1)
        in_place_of(split / "pcr" / "index.table", kind)
        assert read_index(LocalStorage(split), "pcr") == wanted, "index.json has it all"
        return
    in_place_of(split / "pcr" / "index.json", kind)
    with pytest.raises(StorageError, match=KINDS[kind]):
        read_index(LocalStorage(split), "pcr")
    with pytest.raises(StorageError, match=KINDS[kind]):
        pcr_exp.open(split)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list descriptors")
def test_no_descriptor_is_left_open(split: Path) -> None:
    in_place_of(split / "pcr" / "record-000001.pcr", "a FIFO")
    storage = LocalStorage(split)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        with pytest.raises(StorageError):
            storage.read("pcr/record-000001.pcr", 0, 10)
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 25
