"""Images that were added, removed or replaced since the records were made are noticed."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from records_changes import CHANGES, add
from records_encoding import read_tree

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.datasets.sample import split_of
from pcr_exp.errors import RecordError
from pcr_exp.records import prepare, sources, staleness
from pcr_exp.records.prepare import check_records, ensure_records, prepare_records


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_by_prepare_and_by_its_check(
    dataset: FolderConfig, records: RecordsConfig, change: str
) -> None:
    folder = prepare_records(dataset, records)
    assert check_records(dataset, records) == (
        "12 images are unchanged since the records were made, judging by names, labels, sizes and times; "
        "--check=content also compares their bytes"
    )
    before = read_tree(folder)
    make, message = CHANGES[change]
    make(Path(str(dataset.root)))
    for look in (prepare_records, check_records):
        with pytest.raises(RecordError, match=message):
            look(dataset, records)
    assert read_tree(folder) == before


@pytest.mark.parametrize("auto_prepare", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_training_notices_it_by_sizes_and_times(
    dataset: FolderConfig, records: RecordsConfig, change: str, auto_prepare: bool
) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    make, message = CHANGES[change]
    make(Path(str(dataset.root)))
    with pytest.raises(RecordError, match=message):
        ensure_records(dataset, replace(records, auto_prepare=auto_prepare))
    assert read_tree(folder) == before


def test_of_many_files_training_looks_at_some_spread_evenly_and_says_so(
    dataset: FolderConfig,
    records: RecordsConfig,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "MAX_COMPARED_FILES", 4)
    folder = prepare_records(dataset, records)
    with caplog.at_level(logging.INFO):
        ensure_records(dataset, records)
    assert "7 folders, 0 label files and 4 of 12 image files have the same sizes and times as" in caplog.text
    assert "No image was read; `python -m experiments.prepare --check=content`" in caplog.text
    looked_at = json.loads((folder / "source.json").read_text())["files"]
    paths = sorted(Path(str(dataset.root)).rglob("*.jpg"))
    assert list(looked_at) == [str(path) for path in paths[::3]]
    for path, seen in ((paths[1], False), (paths[3], True)):
        path.write_bytes(path.read_bytes() + b"!")
        if seen:
            with pytest.raises(RecordError, match="2 replaced"):
                ensure_records(dataset, records)
        else:
            ensure_records(dataset, records)


def test_a_file_that_changes_while_records_are_made_is_noticed(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepare.encode_split

    def encode(*arguments: object, **named: object) -> object:
        CHANGES["exchange"][0](Path(str(dataset.root)))
        return made(*arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "encode_split", encode)
        folder = prepare_records(dataset, records)
    source = sources.read_source(folder)
    assert source is not None and not source.is_unchanged()


def test_records_of_an_earlier_version_are_looked_at_whole_once(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    path = folder / "source.json"
    content = json.loads(path.read_text())
    del content["files"], content["num_files"], content["asked"]
    path.write_text(json.dumps(content))
    ensure_records(dataset, records)
    assert len(json.loads(path.read_text())["files"]) == 12
    monkeypatch.setattr(staleness, "open_dataset", None)
    ensure_records(dataset, records)


def exchange_unseen(root: Path) -> None:
    """Write different bytes of the same length, and restore the modification time."""
    path = root / "train/dog/2.jpg"
    state = path.stat()
    CHANGES["exchange"][0](root)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_only_the_check_of_contents_sees_a_file_of_the_same_size_and_time(
    dataset: FolderConfig, records: RecordsConfig
) -> None:
    root = Path(str(dataset.root))
    bad = root / "train/cat/3.jpg"
    bad.write_bytes(b"x" * 100)
    prepare_records(dataset, replace(records, on_error="skip"))
    told: list[tuple[int, int]] = []
    found = check_records(dataset, records, contents=True, progress=lambda *done: told.append(done))
    assert found == (
        "12 images are unchanged since the records were made: the bytes of 11 were compared with those in "
        "the records"
    ), "the rejected one is in none"
    assert told == [(number, 11) for number in range(1, 12)]
    exchange_unseen(root)
    assert check_records(dataset, records).startswith("12 images")
    with pytest.raises(RecordError, match=r": 1 replaced: train/dog/2\.jpg\. Set records\.on_change"):
        check_records(dataset, records, contents=True)
    bad.write_bytes(b"y" * 101)
    with pytest.raises(RecordError, match=r"2 replaced: train/cat/3\.jpg, train/dog/2\.jpg"):
        check_records(dataset, records, contents=True)


def test_contents_are_compared_of_a_copy_of_the_dataset_too(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    prepare_records(dataset, records)
    copy = tmp_path / "elsewhere" / "pets"
    shutil.copytree(str(dataset.root), copy, copy_function=shutil.copyfile)
    moved = replace(dataset, root=str(copy))
    assert "the bytes of 12 were compared" in check_records(moved, records, contents=True)
    exchange_unseen(copy)
    assert "were made, judging by names, labels and sizes; --check=content" in check_records(moved, records)
    with pytest.raises(RecordError, match="1 replaced"):
        check_records(moved, records, contents=True)


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
    monkeypatch.setattr(staleness, "of_other_bytes", None)  # the new times were saved
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
    with pytest.raises(RecordError, match=r"the records of pets are missing or incomplete\. Prepare them\."):
        check_records(dataset, records)
    folder = prepare_records(dataset, records)
    (folder / "source.json").write_text(json.dumps({"root": str(dataset.root)}))
    with pytest.raises(
        RecordError, match=r"does not list the images that its records were made from\. Prepare the records"
    ):
        check_records(dataset, records)
    prepare_records(dataset, records)
    assert check_records(dataset, records)
    (folder / "source_images.csv.gz").write_bytes(b"damaged")
    with pytest.raises(RecordError, match=r"does not list the images that its records were made from"):
        check_records(dataset, records)


def test_the_split_of_the_new_images_is_by_their_names() -> None:
    names = [f"train/{name}/new{i}.jpg" for name in ("cat", "dog") for i in range(6)]
    splits = {split_of(name, val_fraction=0, tune_fraction=0.25, seed=0) for name in names}
    assert splits == {"train", "tune"}, "the tests of append want both"
