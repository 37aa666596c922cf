"""Photographs are prepared when they are first opened; later calls open their records."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from composing import compose
from numbered_records import square_crops

import pcr_exp as pcr
from pcr_exp.errors import ConfigError, DatasetError, RecordError
from pcr_exp.records.prepare import records_folder

NUM = 24


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Create 24 JPEG files in two class folders, and a table of the same files next to the folders."""
    jpegs = square_crops([(9 * i, 5 * i) for i in range(NUM)], 40, 85)
    rows = [["path", "label", "size", "tags"]]
    for i, jpeg in enumerate(jpegs):
        name = f"{'cat' if i % 2 else 'dog'}/{i:02}.jpg"
        (tmp_path / "my photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "my photos" / name).write_bytes(jpeg)
        rows.append([f"my photos/{name}", name[:3], i / 4, "old;red" if i % 3 else "red"])
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return tmp_path / "my photos"


def test_photographs_are_prepared_once_as_the_command_does(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = pcr.open(photos, "group_5", prepare=tmp_path / "records")
    assert "records" in capsys.readouterr().err, "a bar"
    val = pcr.open(photos, prepare=tmp_path / "records", split="val")
    tune = pcr.open(photos, prepare=tmp_path / "records", split="tune")
    assert train.classes == ["cat", "dog"]
    ids = [data.id(i) for data in (train, val, tune) for i in range(len(data))]
    assert sorted(ids) == sorted(f"{p.parent.name}/{p.name}" for p in photos.glob("*/*"))
    assert all(train[i][1] == train.classes.index(train.id(i)[:3]) for i in range(len(train)))
    command = compose("prepare", "dataset=folder", f"dataset.root='{photos}'")
    (folder,) = (tmp_path / "records").iterdir()
    assert folder.name == records_folder(command.dataset, command.records)
    monkeypatch.setattr("pcr_exp.records.prepare.encode_split", None)  # encoding again would fail
    assert len(pcr.open(photos, prepare=tmp_path / "records")) == len(train)
    (photos / "cat" / "new.jpg").write_bytes((photos / "cat" / "01.jpg").read_bytes())
    with pytest.raises(RecordError, match=r"1 added: cat/new\.jpg"):
        pcr.open(photos, prepare=tmp_path / "records")


@pytest.mark.parametrize(
    ("label", "labels", "wanted"),
    [
        ("label", None, {0, 1}),
        ("size", float, {i / 4 for i in range(NUM)}),
        ("tags", "multi_hot", {0.0, 1.0}),
    ],
)
def test_tables_are_prepared_too(
    photos: Path, tmp_path: Path, label: str, labels: Any, wanted: set[float]
) -> None:
    table = photos.parent / "labels.csv"
    train = pcr.open(table, prepare=tmp_path / "records", label=label, labels=labels)
    found = {value for row in train.targets for value in (row if isinstance(row, list) else [row])}
    assert found <= wanted and len(train) > NUM / 3
    assert labels != "multi_hot" or train.label_values.shape[1] == 2
    command = compose("prepare", "dataset=table", f"dataset.table='{table}'", f"dataset.label={label}")
    (folder,) = (tmp_path / "records").iterdir()
    assert folder.name == records_folder(command.dataset, command.records)


def test_another_table_of_the_same_folder_is_not_taken_for_the_first(photos: Path, tmp_path: Path) -> None:
    rows = (photos.parent / "labels.csv").read_text().splitlines()
    (photos.parent / "few.csv").write_text("\n".join(rows[:18]))
    records = tmp_path / "records"
    train = pcr.open(photos.parent / "labels.csv", prepare=records)
    with pytest.raises(RecordError, match=r"7 removed: .* or, with pcr\.open, another folder: prepare="):
        pcr.open(photos.parent / "few.csv", prepare=records)
    with pytest.raises(RecordError, match=r"with other labels"):
        pcr.open(photos.parent / "labels.csv", prepare=records, label="size", labels=float)
    few = pcr.open(photos.parent / "few.csv", prepare=tmp_path / "few")
    assert len(few) < len(train) == len(pcr.open(photos.parent / "labels.csv", prepare=records))


def test_a_table_of_another_name_and_equal_rows_is_compared_once(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = photos.parent / "labels.csv"
    pcr.open(table, prepare=tmp_path / "records")
    renamed = table.rename(table.with_name("renamed.csv"))
    pcr.open(renamed, prepare=tmp_path / "records")
    monkeypatch.setattr("pcr_exp.records.staleness.open_dataset", None)  # reading the table would fail
    pcr.open(renamed, prepare=tmp_path / "records")


def test_photographs_without_prepare_are_shown_the_line(photos: Path, tmp_path: Path) -> None:
    line = r"These are photographs. Call pcr_exp.open\('{}', prepare='records/'\): the first call"
    for path in (photos, photos / "cat", tmp_path / "labels.csv"):
        with pytest.raises(RecordError, match=line.format(path)):
            pcr.open(path)
    divided = tmp_path / "divided"
    (divided / "train").mkdir(parents=True)
    photos.rename(divided / "train" / "pets")
    (divided / "train" / "pets" / "cat").rename(divided / "train" / "cat")
    with pytest.raises(RecordError, match=line.format(divided)):
        pcr.open(divided)
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    with pytest.raises(RecordError, match=r"no records can be opened at .*the folder of a split") as error:
        pcr.open(tmp_path / "empty")
    assert "the first call" not in str(error.value)


def test_places_that_cannot_be_prepared_are_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prepare='.*photos/records': wanted a folder outside of"):
        pcr.open(photos, prepare=photos / "records")
    with pytest.raises(ConfigError, match=r"prepare='s3://bucket': wanted a local folder"):
        pcr.open(photos, prepare="s3://bucket")
    with pytest.raises(ConfigError, match=r"split='val': wanted None without prepare"):
        pcr.open(photos, split="val")
    with pytest.raises(ConfigError, match=r"split='test': wanted train or tune or val"):
        pcr.open(photos, prepare=tmp_path / "records", split="test")
    with pytest.raises(
        DatasetError, match=r"^root='.*/nowhere': .*/nowhere does not exist\. Wanted a folder"
    ):
        pcr.open(tmp_path / "nowhere", prepare=tmp_path / "records")
    pcr.open(photos, prepare=tmp_path / "records")
    (folder,) = (tmp_path / "records").iterdir()
    for made in (folder, folder / "train", folder / "train" / "pcr"):
        with pytest.raises(ConfigError, match=r"holds records already. Open it without prepare"):
            pcr.open(made, prepare=tmp_path / "more")


def test_photographs_elsewhere_are_not_prepared(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wanted a local folder, for photographs in a local folder"):
        pcr.open("s3://bucket/photos", prepare=tmp_path / "records")
