"""Records with fields from a table: their folder, changed fields, and added images."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from field_samples import fields_of, write_samples

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.table import ColumnsConfig, TableConfig
from pcr_exp.errors import ConfigError, RecordError, StorageError
from pcr_exp.records.bucket import check_bucket, prepare_in_bucket
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.index import parse_index
from pcr_exp.records.inspect import find_records_and_faults, verify_records
from pcr_exp.records.prepare import check_records, ensure_records, prepare_records, records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.writer import SplitWriter
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import WritableStorage

NUM = 12


def write_table(folder: Path, num: int) -> None:
    with (folder / "t.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "mask", "text"])
        for i in range(num):
            rows.writerow([f"{i:03}.jpg", "ab"[i % 2], f"{i:03}.png", f"text {i}"])


@pytest.fixture
def dataset(tmp_path: Path) -> TableConfig:
    write_samples(tmp_path / "in", NUM + 2)
    write_table(tmp_path / "in", NUM)
    return TableConfig(
        name="drawn",
        table=str(tmp_path / "in/t.csv"),
        label="label",
        images_per_record=3,
        columns=ColumnsConfig(mask="mask", text="text"),
        tune_fraction=0.2,
    )


@pytest.fixture
def records(tmp_path: Path) -> RecordsConfig:
    return RecordsConfig(root=str(tmp_path / "records"), fields=["text", "mask"])


def masks(folder: Path) -> dict[str, bytes]:
    """Return the masks of all splits, by image ID."""
    found = {}
    for split in ("train", "tune", "val"):
        opened = RecordSet(LocalStorage(folder / split), "pcr")
        fields = RecordFields(opened, ["mask"])
        for record in range(len(opened.index.records)):
            ids = opened.read_prefix(record, 1).ids
            beside = fields.read(record).samples
            found |= {id_: bytes(one["mask"]) for id_, one in zip(ids, beside, strict=True)}
    return found


def test_records_with_fields_lie_in_a_folder_of_their_own(
    dataset: TableConfig, records: RecordsConfig
) -> None:
    folder = prepare_records(dataset, records)
    assert masks(folder) == {f"{i:03}.jpg": fields_of(i)["mask"] for i in range(NUM)}
    plain = replace(records, fields=[])
    assert records_folder(dataset, replace(records, fields=["mask", "text"])) == folder.name
    assert records_folder(dataset, plain) != folder.name
    without = prepare_records(dataset, plain)
    assert not list(without.rglob("*.fields"))
    with pytest.raises(
        ConfigError, match=r"records.fields=\['boxes'\]: drawn has no field 'boxes'; it has mask, text"
    ):
        prepare_records(dataset, replace(records, fields=["boxes"]))


def exchange_mask(root: Path, number: int = 3) -> None:
    """Write another mask of the same size in bytes; only the modification time reveals the change."""
    path = root / f"{number:03}.png"
    path.write_bytes(path.read_bytes()[:-1] + b"\x83")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))


def resize_mask(root: Path) -> None:
    (root / "003.png").write_bytes((root / "003.png").read_bytes() + b"!")


def retext(root: Path) -> None:
    (root / "t.csv").write_text((root / "t.csv").read_text().replace("text 3", "TEXT 3"))


def test_masks_that_changed_after_an_interrupted_encode_are_stored_as_they_are_now(
    dataset: TableConfig, records: RecordsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(SplitWriter, "finish", stop)
        prepare_records(dataset, records)
    for number in range(NUM):
        exchange_mask(tmp_path / "in", number)
    found = masks(prepare_records(dataset, records))
    assert found == {f"{i:03}.jpg": (tmp_path / "in" / f"{i:03}.png").read_bytes() for i in range(NUM)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (exchange_mask, r"1 replaced: 003\.jpg"),
        (resize_mask, r"1 replaced: 003\.jpg"),
        (retext, r"1 with other labels or in another split: 003\.jpg"),
    ],
)
def test_a_changed_field_is_noticed_and_encoded_anew(
    dataset: TableConfig, records: RecordsConfig, tmp_path: Path, change: object, message: str
) -> None:
    folder = prepare_records(dataset, records)
    assert "12 images are unchanged since" in check_records(dataset, records, contents=True)
    ensure_records(dataset, records)
    assert callable(change)
    change(tmp_path / "in")
    for look in (prepare_records, ensure_records, check_records):
        with pytest.raises(RecordError, match=message):
            look(dataset, records)
    if change is exchange_mask:
        (tmp_path / "in/003.png").write_bytes(fields_of(4)["mask"])  # a valid mask again, of its image's size
        (tmp_path / "in/003.jpg").write_bytes((tmp_path / "in/004.jpg").read_bytes())
        prepare_records(dataset, replace(records, on_change="reencode"))
        assert masks(folder)["003.jpg"] == fields_of(4)["mask"]
    elif change is retext:
        prepare_records(dataset, replace(records, on_change="reencode"))
        assert "are unchanged since" in check_records(dataset, records, contents=True)


def test_a_missing_mask_is_noticed_when_it_comes(
    dataset: TableConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    (tmp_path / "in/003.png").rename(tmp_path / "away.png")
    some = replace(dataset, on_error="skip")
    folder = prepare_records(some, records)
    assert "003.jpg" not in masks(folder) and "no such mask" in (folder / "rejected.csv").read_text()
    (tmp_path / "away.png").rename(tmp_path / "in/003.png")
    with pytest.raises(RecordError, match=r"1 added: 003\.jpg"):
        ensure_records(some, records)


def test_images_are_added_with_their_fields(
    dataset: TableConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    folder = prepare_records(dataset, records)
    write_table(tmp_path / "in", NUM + 2)
    prepare_records(dataset, replace(records, on_change="append"))
    assert masks(folder) == {f"{i:03}.jpg": fields_of(i)["mask"] for i in range(NUM + 2)}
    every, faults = find_records_and_faults(str(folder))
    damages = [
        d
        for found in every
        for d in verify_records(found.records, found.numbers, num_threads=1, done=lambda _: None)
    ]
    assert not faults and not damages


def test_images_with_other_fields_cannot_be_added(
    dataset: TableConfig, records: RecordsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_records(dataset, records)
    write_table(tmp_path / "in", NUM + 2)
    monkeypatch.setattr("pcr_exp.datasets.table._kinds", lambda _: {"mask": "mask", "text": "json"})
    (tmp_path / "in/t.csv").write_text((tmp_path / "in/t.csv").read_text())
    with pytest.raises(
        RecordError,
        match=r"holds records with the fields .*'text': 'text'.*, but .* now has .*'text': 'json'",
    ):
        prepare_records(dataset, replace(records, on_change="append"))


class MemoryStorage(WritableStorage):
    """A bucket held in a dict."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.files[path][offset : offset + length]

    def size(self, path: str) -> int:
        return len(self.files[path])

    def size_or_none(self, path: str) -> int | None:
        return len(self.files[path]) if path in self.files else None

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        return iter([(path, len(data)) for path, data in self.files.items() if path.startswith(f"{folder}/")])

    def write(self, path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
        if self.files.get(path, data) not in (data, replaces):
            return False
        self.files[path] = data
        return True

    def remove(self, path: str) -> None:
        self.files.pop(path, None)


def test_fields_go_into_a_bucket_with_their_records(
    dataset: TableConfig, records: RecordsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = MemoryStorage()
    monkeypatch.setattr("pcr_exp.records.bucket._open", lambda _: there)
    remote = replace(records, root="s3://bucket/records", staging=str(tmp_path / "staging"))
    made = prepare_in_bucket(dataset, remote)
    for path in made.rglob("*.fields"):
        name = f"{made.name}/{path.relative_to(made).as_posix()}"
        assert there.files[name] == path.read_bytes()
    assert (
        len([name for name in there.files if name.endswith(".fields")])
        == len(list(made.rglob("*.fields")))
        > 6
    )
    assert "objects below" in check_bucket(dataset, remote)
    gone = next(name for name in there.files if name.endswith(".fields"))
    data = there.files.pop(gone)
    with pytest.raises(RecordError, match=r"record-00000\d\.fields has 0 bytes, but its index says"):
        check_bucket(dataset, remote)
    prepare_in_bucket(dataset, remote)
    assert there.files[gone] == data


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    there = MemoryStorage()
    monkeypatch.setattr("pcr_exp.records.bucket._open", lambda _: there)
    return there


@pytest.fixture
def remote(records: RecordsConfig, tmp_path: Path) -> RecordsConfig:
    return replace(records, root="s3://bucket/records", staging=str(tmp_path / "staging"), on_change="append")


def listed(bucket: MemoryStorage) -> int:
    """Return the number of images in all indexes of `pcr`."""
    indexes = {path: data for path, data in bucket.files.items() if path.endswith("pcr/index.json")}
    return sum(parse_index(data, path).num_samples for path, data in indexes.items())


def test_an_append_whose_index_could_not_be_sent_is_made_up_for(
    dataset: TableConfig, remote: RecordsConfig, bucket: MemoryStorage, tmp_path: Path
) -> None:
    """This also works on another machine, whose staging folder is empty."""
    prepare_in_bucket(dataset, remote)
    write_table(tmp_path / "in", NUM + 2)
    write = bucket.write
    with pytest.MonkeyPatch.context() as broken:

        def refuse(path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
            if path.endswith("index.json"):
                raise StorageError("429")
            return write(path, data, replaces=replaces)

        broken.setattr(bucket, "write", refuse)
        with pytest.raises(StorageError, match="429"):
            prepare_in_bucket(dataset, remote)
    shutil.rmtree(tmp_path / "staging")
    prepare_in_bucket(dataset, remote)
    assert listed(bucket) == NUM + 2


def test_an_index_does_not_give_way_to_one_that_lists_less(
    dataset: TableConfig, remote: RecordsConfig, bucket: MemoryStorage, tmp_path: Path
) -> None:
    """The shorter index comes from a machine with the earlier images and an earlier staging folder."""
    prepare_in_bucket(dataset, remote)
    shutil.copytree(tmp_path / "staging", tmp_path / "old")
    write_table(tmp_path / "in", NUM + 2)
    prepare_in_bucket(dataset, remote)
    write_table(tmp_path / "in", NUM)
    before = dict(bucket.files)
    with pytest.raises(RecordError, match="exists already, from a different encode"):
        prepare_in_bucket(dataset, replace(remote, staging=str(tmp_path / "old")))
    assert bucket.files == before


def test_an_image_of_as_many_bytes_is_sent_anew(
    dataset: TableConfig, remote: RecordsConfig, bucket: MemoryStorage, tmp_path: Path
) -> None:
    prepare_in_bucket(dataset, remote)
    exchange_mask(tmp_path / "in")
    made = prepare_in_bucket(dataset, replace(remote, on_change="reencode"))
    for path in [*made.rglob("*.fields"), *made.rglob("*.pcr")]:
        assert bucket.files[f"{made.name}/{path.relative_to(made).as_posix()}"] == path.read_bytes(), path
