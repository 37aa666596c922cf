"""Images that were added, removed or replaced since records were made of them."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
from records_changes import CHANGES, SEEN_IN_FOLDERS, add
from records_encoding import read_tree

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.datasets.sample import split_of
from pcr_exp.errors import RecordError
from pcr_exp.records import prepare, staleness
from pcr_exp.records.prepare import check_records, ensure_records, prepare_records


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_by_prepare_and_by_its_check(
    dataset: FolderConfig, records: RecordsConfig, change: str
) -> None:
    folder = prepare_records(dataset, records)
    assert check_records(dataset, records) == "12 images are as they were when the records were made"
    before = read_tree(folder)
    make, message = CHANGES[change]
    make(Path(str(dataset.root)))
    for look in (prepare_records, check_records):
        with pytest.raises(RecordError, match=message):
            look(dataset, records)
    assert read_tree(folder) == before


@pytest.mark.parametrize("auto_prepare", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_training_looks_at_folders_and_says_that_this_is_all(
    dataset: FolderConfig,
    records: RecordsConfig,
    caplog: pytest.LogCaptureFixture,
    change: str,
    auto_prepare: bool,
) -> None:
    prepare_records(dataset, records)
    make, message = CHANGES[change]
    make(Path(str(dataset.root)))
    records = replace(records, auto_prepare=auto_prepare)
    with caplog.at_level(logging.INFO):
        if change in SEEN_IN_FOLDERS:
            with pytest.raises(RecordError, match=message):
                ensure_records(dataset, records)
        else:
            ensure_records(dataset, records)
            assert "7 folders and 0 label files are as they were" in caplog.text
            assert "only these were looked at" in caplog.text


def test_the_look_at_folders_opens_no_image(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_records(dataset, records)
    for module in (staleness, prepare):
        monkeypatch.setattr(module, "open_dataset", None)
    ensure_records(dataset, records)


def test_a_file_that_is_no_image_is_no_change_and_is_looked_at_once(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_records(dataset, records)
    (Path(str(dataset.root)) / "train/cat/Thumbs.db").touch()
    ensure_records(dataset, records)
    monkeypatch.setattr(staleness, "open_dataset", None)
    ensure_records(dataset, records)


def test_files_that_were_only_touched_are_compared_byte_by_byte(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    for path in Path(str(dataset.root)).rglob("*.jpg"):
        os.utime(path, (1, 1))
    assert prepare_records(dataset, records) == folder
    monkeypatch.setattr(staleness, "of_other_bytes", None)  # the new times were kept
    assert check_records(dataset, records).startswith("12 images")


def test_a_rejected_file_that_was_touched_counts_as_replaced(
    dataset: FolderConfig, records: RecordsConfig
) -> None:
    bad = Path(str(dataset.root)) / "train/cat/3.jpg"
    bad.write_bytes(b"x" * 100)
    prepare_records(dataset, replace(records, on_error="skip"))
    bad.write_bytes(b"y" * 100)
    with pytest.raises(RecordError, match=r"1 replaced: train/cat/3\.jpg"):
        prepare_records(dataset, records)


def test_change_ignored(
    dataset: FolderConfig, records: RecordsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    add(Path(str(dataset.root)))
    assert prepare_records(dataset, replace(records, on_change="ignore")) == folder
    assert "1 added: train/cat/more.jpg" in caplog.text and "on_change=ignore" in caplog.text
    assert read_tree(folder) == before


@pytest.mark.parametrize("change", CHANGES)
def test_reencoded_records_are_those_of_a_first_encode(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path, change: str
) -> None:
    folder = prepare_records(dataset, records)
    CHANGES[change][0](Path(str(dataset.root)))
    assert prepare_records(dataset, replace(records, on_change="reencode")) == folder
    assert check_records(dataset, records)
    fresh = prepare_records(dataset, RecordsConfig(root=str(tmp_path / "fresh")))
    assert read_tree(folder) == read_tree(fresh)
    assert not list(folder.rglob(".receipts"))


def test_without_auto_prepare_nothing_is_made(dataset: FolderConfig, records: RecordsConfig) -> None:
    folder = prepare_records(dataset, records)
    add(Path(str(dataset.root)))
    before = read_tree(folder)
    never = replace(records, auto_prepare=False, on_change="append")
    with pytest.raises(RecordError, match=r"auto_prepare=false forbids records\.on_change=append"):
        ensure_records(dataset, never)
    assert read_tree(folder) == before


def test_check_says_what_it_needs(dataset: FolderConfig, records: RecordsConfig) -> None:
    with pytest.raises(RecordError, match=r"there are no records of pets, or not all\. Prepare them\."):
        check_records(dataset, records)
    folder = prepare_records(dataset, records)
    (folder / "source.json").write_text(json.dumps({"root": str(dataset.root)}))
    with pytest.raises(RecordError, match=r"does not say what its records were made of\. Prepare them once"):
        check_records(dataset, records)
    prepare_records(dataset, records)
    assert check_records(dataset, records)
    (folder / "source_images.csv.gz").write_bytes(b"damaged")
    with pytest.raises(RecordError, match=r"does not say what its records were made of"):
        check_records(dataset, records)


def test_the_split_of_the_new_images_is_by_their_names() -> None:
    names = [f"train/{name}/new{i}.jpg" for name in ("cat", "dog") for i in range(6)]
    splits = {split_of(name, val_fraction=0, tune_fraction=0.25, seed=0) for name in names}
    assert splits == {"train", "tune"}, "the tests of append want both"
