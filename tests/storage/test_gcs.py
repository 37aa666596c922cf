"""gs:// through obstore: no write replaces another writer's object, by generations where S3 has ETags."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_gcs import BUCKET, gcs

from pcr_exp.cli.prepare import prepare
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import StorageError
from pcr_exp.records import index_table as stored_index
from pcr_exp.records.index import EntryTable
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.objects import ObjectStorage

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'pcr-exp[remote]'")

DATA = ["dataset=photos", "dataset.num_train=16", "dataset.num_val=8", "dataset.size_px=64"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStorage]:
    with gcs() as endpoint:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        yield ObjectStorage(f"gs://{BUCKET}/records")


def test_ranges_sizes_and_lists(bucket: ObjectStorage) -> None:
    names = [f"train/record {i}.pcr" for i in range(7)]
    assert all(bucket.write(name, bytes(range(i, i + 50))) for i, name in enumerate(names))
    assert bucket.read(names[2], 5, 3) == bytes([7, 8, 9])
    assert bucket.read(names[2], 48, 10) == bytes([50, 51]) and bucket.read(names[2], 60, 1) == b""
    assert dict(bucket.sizes("train")) == dict.fromkeys(names, 50), "of three pages"
    assert bucket.size(names[0]) == 50 and bucket.size_or_none("train/none") is None
    with pytest.raises(StorageError, match=r"train/none does not exist"):
        bucket.read("train/none", 0, 1)


def test_of_two_writers_one_wins(bucket: ObjectStorage) -> None:
    assert bucket.write("index.json", b"mine") and bucket.write("index.json", b"mine")
    assert not bucket.write("index.json", b"another's")
    assert not bucket.write("index.json", b"new", replaces=b"what was there once")
    assert bucket.write("index.json", b"new", replaces=b"mine")
    assert ObjectStorage(bucket.url).read("index.json", 0, 9) == b"new"
    bucket.remove("index.json")
    bucket.remove("index.json")
    assert bucket.write("index.json", b"another's")


def test_an_object_that_changes_is_an_error(bucket: ObjectStorage) -> None:
    bucket.write("record", b"first")
    assert bucket.read("record", 0, 5) == b"first"
    assert ObjectStorage(bucket.url).write("record", b"other", replaces=b"first")
    with pytest.raises(StorageError, match="was replaced while it was in use"):
        bucket.read("record", 0, 5)


def test_large_files_go_in_parts(bucket: ObjectStorage) -> None:
    large = bytes(range(256)) * (20 * 2**12)
    assert bucket.write("large", large) and not bucket.write("large", b"x" + large)
    assert bucket.read("large", len(large) - 3, 10) == large[-3:]


def test_an_emulator_is_named_with_its_protocol_or_without(
    bucket: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.write("it", b"is there")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", os.environ["STORAGE_EMULATOR_HOST"].removeprefix("http://"))
    assert ObjectStorage(bucket.url).size("it") == 8


def test_records_go_there_are_checked_and_read(
    bucket: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_index, "LARGE_BYTES", 500)
    staging = f"{tmp_path}/staging"
    places = [f"dataset.root={tmp_path}/images", f"records.root={bucket.url}", f"records.staging={staging}"]
    assert prepare(compose("prepare", PrepareConfig, *DATA, *places)) == "finished"
    assert prepare(compose("prepare", PrepareConfig, *DATA, *places, "check=true")) == "checked"
    before = dict(bucket.sizes(""))
    (record,) = [name for name in before if name.endswith("train/pcr/record-000000.pcr")]
    folder = record.rpartition("/")[0]
    records = RecordSet(bucket, folder)
    assert isinstance(records.index.records, EntryTable)
    assert records.read_prefix(0, 2).encoded(0)[:2] == b"\xff\xd8"
    for lost in (record, f"{folder}/index.json", f"{folder}/index.table"):
        bucket.remove(lost)
    prepare(compose("prepare", PrepareConfig, *DATA, *places))
    assert dict(bucket.sizes("")) == before, "what is missing was sent again"
