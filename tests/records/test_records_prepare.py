"""From a dataset's configuration to records, once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from records_encoding import read_tree, write_images
from records_pictures import CASES, PLAIN
from records_storage import FolderStorage

from pcr_exp.config.dataset import FolderConfig
from pcr_exp.config.records import RecordsConfig, records_name
from pcr_exp.errors import ConfigError, ImageError, RecordError, StorageError
from pcr_exp.records import prepare
from pcr_exp.records.encode import EncodeReport
from pcr_exp.records.prepare import prepare_records, records_folder
from pcr_exp.records.reader import RecordSet


@pytest.fixture
def dataset(tmp_path: Path) -> FolderConfig:
    """Two classes, four training images and two of validation in each; two images per record."""
    images = list(CASES.values())
    for i, name in enumerate(("cat", "dog")):
        write_images(tmp_path / "in/train" / name, {f"{k}": images[4 * i + k] for k in range(4)})
        write_images(tmp_path / "in/val" / name, {f"{k}": images[8 + 2 * i + k] for k in range(2)})
    return FolderConfig(
        name="folder", root=str(tmp_path / "in"), label="class", images_per_record=2, target_top1=0.5
    )


@pytest.fixture
def records(tmp_path: Path) -> RecordsConfig:
    return RecordsConfig(root=str(tmp_path / "records"))


def test_both_splits_are_encoded(dataset: FolderConfig, records: RecordsConfig) -> None:
    told: list[tuple[int, int]] = []
    reports: dict[str, EncodeReport] = {}
    folder = prepare_records(
        dataset, records, progress=lambda *numbers: told.append(numbers), on_report=reports.__setitem__
    )
    assert folder == Path(records.root) / records_name(dataset)
    assert folder.name == records_folder(dataset, records)
    assert sorted(set(told)) == [(done, 12) for done in range(1, 13)]
    assert {split: report.num_images for split, report in reports.items()} == {"train": 8, "val": 4}
    for split, num_samples in {"train": 8, "val": 4}.items():
        for encoding in ("pcr", "baseline"):
            index = RecordSet(FolderStorage(Path(records.root)), f"{folder.name}/{split}/{encoding}").index
            assert (index.dataset, index.split, index.num_samples) == ("folder", split, num_samples)
            assert index.classes == {"class": ["cat", "dog"]}
            assert [record.num_samples for record in index.records] == [2] * (num_samples // 2)


def test_done_already_needs_no_dataset(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    monkeypatch.setattr(prepare, "open_dataset", None)
    assert prepare_records(dataset, records) == folder
    shutil.rmtree(str(dataset.root))
    assert prepare_records(dataset, records) == folder
    assert prepare_records(replace(dataset, root=None), records) == folder
    assert read_tree(folder) == before


def test_a_split_that_is_missing_is_made(dataset: FolderConfig, records: RecordsConfig) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    shutil.rmtree(folder / "val")
    prepare_records(dataset, records)
    assert read_tree(folder) == before


def test_the_same_files_elsewhere_are_recognised_once(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    before = {path: path.read_bytes() for path in folder.rglob("record-*")}
    (tmp_path / "in").rename(tmp_path / "moved")
    moved = replace(dataset, root=str(tmp_path / "moved"))
    assert prepare_records(moved, records) == folder
    assert {path: path.read_bytes() for path in folder.rglob("record-*")} == before
    monkeypatch.setattr(prepare, "open_dataset", None)
    assert prepare_records(moved, records) == folder


def test_other_files_are_not_taken_for_those_of_the_records(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    prepare_records(dataset, records)
    shutil.copytree(tmp_path / "in", tmp_path / "other")
    (tmp_path / "other/train/cat/more.jpg").write_bytes(PLAIN)
    with pytest.raises(RecordError, match=r"train holds records that were made from other files"):
        prepare_records(replace(dataset, root=str(tmp_path / "other")), records)


def test_a_missing_note_of_the_source_costs_a_comparison_only(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    (folder / "source.json").unlink()

    def read_only(path: Path, _: object) -> None:
        raise StorageError(f"{path} cannot be written")

    monkeypatch.setattr(prepare, "write_atomic", read_only)
    reports: dict[str, EncodeReport] = {}
    assert prepare_records(dataset, records, on_report=reports.__setitem__) == folder
    assert all(report.num_turned is None for report in reports.values())


@pytest.mark.parametrize("root", ["s3://bucket/records", "file:///tmp/records", "memory://records"])
def test_records_are_written_locally_only(dataset: FolderConfig, root: str) -> None:
    with pytest.raises(ConfigError, match=rf"root='{root}'.*a local records\.root.*auto_prepare=false"):
        prepare_records(dataset, RecordsConfig(root=root))


def test_on_error_is_heeded(dataset: FolderConfig, records: RecordsConfig) -> None:
    bad = Path(str(dataset.root)) / "train/cat/3.jpg"
    bad.write_bytes(b"")
    with pytest.raises(ImageError, match=r"cat/3\.jpg: zero-byte file.*records\.on_error=skip"):
        prepare_records(dataset, records)
    folder = prepare_records(dataset, replace(records, on_error="skip"))
    assert (folder / "train/rejected.csv").read_text() == "id,reason\ntrain/cat/3.jpg,zero-byte file\n"
