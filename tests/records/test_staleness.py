"""Images that were added, removed or replaced since records were made of them."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from records_encoding import read_tree
from records_pictures import CASES, PLAIN
from records_storage import FolderStorage

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.datasets.sample import split_of
from pcr_exp.errors import RecordError
from pcr_exp.records import encode, prepare, staleness
from pcr_exp.records.fingerprint import joint_images_key
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.prepare import check_records, ensure_records, prepare_records
from pcr_exp.records.reader import RecordSet

SPLITS = ("train", "tune", "val")


def indexes(folder: Path, encoding: str = "pcr") -> dict[str, RecordIndex]:
    return {split: RecordSet(FolderStorage(folder), f"{split}/{encoding}").index for split in SPLITS}


def stored(folder: Path, encoding: str) -> dict[str, tuple[str, bytes, int]]:
    """Every image in the records: id -> (split, bytes, label)."""
    found = {}
    for split in SPLITS:
        records = RecordSet(FolderStorage(folder), f"{split}/{encoding}")
        for number in range(len(records.index.records)):
            prefix = records.read_prefix(number, records.index.num_groups)
            for i, id_ in enumerate(prefix.ids):
                assert id_ not in found
                found[id_] = (split, prefix.encoded(i), int(prefix.labels["class"][i]))
    return found


def add(root: Path) -> None:
    (root / "train/cat/more.jpg").write_bytes(PLAIN)


def remove(root: Path) -> None:
    (root / "val/dog/1.jpg").unlink()


def overwrite(root: Path) -> None:
    with (root / "train/dog/2.jpg").open("ab") as file:
        file.write(b"!")


def exchange(root: Path) -> None:
    """Other bytes, as many: only the time tells."""
    path = root / "train/dog/2.jpg"
    content = bytearray(path.read_bytes())
    content[15] ^= 1  # in the first marker, of no effect on pixels
    path.write_bytes(content)


def relabel(root: Path) -> None:
    (root / "train/dog/2.jpg").rename(root / "train/cat/9.jpg")


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "add": (add, r": 1 added: train/cat/more\.jpg\. Choose with records\.on_change"),
    "remove": (remove, r": 1 removed: val/dog/1\.jpg\. "),
    "overwrite": (overwrite, r": 1 replaced: train/dog/2\.jpg\. "),
    "exchange": (exchange, r": 1 replaced: train/dog/2\.jpg\. "),
    "relabel": (relabel, r": 1 added: train/cat/9\.jpg; 1 removed: train/dog/2\.jpg\. "),
}
SEEN_IN_FOLDERS = ("add", "remove", "relabel")


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


def more_of_each_split(root: Path) -> list[str]:
    """New training images, of which some are to tune by, and new validation images."""
    images = list(CASES.values())
    files = [f"train/{name}/new{i}.jpg" for name in ("cat", "dog") for i in range(6)]
    files += [f"val/{name}/new.jpg" for name in ("cat", "dog")]
    for i, file in enumerate(files):
        (root / file).write_bytes(images[i % len(images)])
    return files


@pytest.mark.parametrize("times", [1, 2])
def test_append_encodes_what_is_new_and_leaves_the_rest(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    folder = prepare_records(dataset, records)
    before, old = read_tree(folder), {split: index.fingerprint for split, index in indexes(folder).items()}
    files = more_of_each_split(Path(str(dataset.root)))
    encoded: list[str] = []
    load = encode.load_image
    monkeypatch.setattr(encode, "load_image", lambda path, *rest: encoded.append(path) or load(path, *rest))
    if times == 2:
        late = Path(str(dataset.root)) / files[0]
        late.rename(tmp_path / "late.jpg")
        prepare_records(dataset, replace(records, on_change="append"))
        (tmp_path / "late.jpg").rename(late)
    assert prepare_records(dataset, replace(records, on_change="append")) == folder
    assert sorted(encoded) == sorted(Path(str(dataset.root)) / file for file in files)
    after = read_tree(folder)
    assert {name: after[name] for name in before if name.endswith(".pcr")} == {
        name: content for name, content in before.items() if name.endswith(".pcr")
    }
    fresh = prepare_records(dataset, RecordsConfig(root=str(tmp_path / "fresh")))
    for encoding in ("pcr", "baseline"):
        assert stored(folder, encoding) == stored(fresh, encoding)
    new, whole = indexes(folder), indexes(fresh)
    assert joint_images_key(new) == joint_images_key(whole)
    for split in SPLITS:
        assert new[split].fingerprint not in (old[split], whole[split].fingerprint)
        assert new[split].records[0].fingerprint == old[split]
        assert indexes(folder, "baseline")[split].fingerprint == new[split].fingerprint
    assert check_records(dataset, records).startswith("26 images")
    assert read_tree(folder) == after
    (folder / "source.json").unlink()
    prepare_records(dataset, records)  # recognised by its images, as after any loss of that note
    assert prepare_records(dataset, replace(records, on_change="append")) == folder


def test_a_new_image_stays_out_of_other_splits(dataset: FolderConfig, records: RecordsConfig) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    (Path(str(dataset.root)) / "val/cat/more.jpg").write_bytes(PLAIN)
    prepare_records(dataset, replace(records, on_change="append"))
    after = read_tree(folder)
    changed = {name for name in after if after[name] != before.get(name)}
    assert {name.split("/")[0] for name in changed if "/" in name} == {"val"}


@pytest.mark.parametrize("stop_after", range(6))
def test_an_append_that_was_stopped_continues(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    folder = prepare_records(dataset, records)
    shutil.copytree(folder, folder.with_name("unstopped"))
    more_of_each_split(Path(str(dataset.root)))
    appending = replace(records, on_change="append")
    written: list[Path] = []
    module = __import__("pcr_exp.records.writer", fromlist=["write_atomic"])
    original = module.write_atomic

    def stop(path: Path, chunks: object) -> None:
        written.append(path)
        if len(written) > 2 * stop_after:
            raise KeyboardInterrupt
        original(path, chunks)

    monkeypatch.setattr(module, "write_atomic", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare_records(dataset, appending)
    monkeypatch.setattr(module, "write_atomic", original)
    prepare_records(dataset, appending)
    stopped = read_tree(folder)
    shutil.rmtree(folder)
    folder.with_name("unstopped").rename(folder)
    prepare_records(dataset, appending)
    assert read_tree(folder) == stopped


@pytest.mark.parametrize("change", ["remove", "overwrite", "relabel"])
def test_append_is_refused_where_old_images_changed(
    dataset: FolderConfig, records: RecordsConfig, change: str
) -> None:
    prepare_records(dataset, records)
    CHANGES[change][0](Path(str(dataset.root)))
    with pytest.raises(RecordError, match=r"append cannot be had: records hold images that are gone or"):
        prepare_records(dataset, replace(records, on_change="append"))


def test_append_is_refused_with_a_new_class(dataset: FolderConfig, records: RecordsConfig) -> None:
    prepare_records(dataset, records)
    for split in ("train", "val"):
        for i in range(4):
            path = Path(str(dataset.root)) / split / f"eel/{i}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(PLAIN)
    with pytest.raises(RecordError, match=r"holds records of other classes than pets has now.*reencode"):
        prepare_records(dataset, replace(records, on_change="append"))


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


def test_records_that_do_not_say_their_images_have_no_key(
    dataset: FolderConfig, records: RecordsConfig
) -> None:
    found = indexes(prepare_records(dataset, records))
    found["tune"] = replace(found["tune"], images="")
    with pytest.raises(RecordError, match=r"tune records of pets do not say which images they hold"):
        joint_images_key(found)


def test_the_split_of_the_new_images_is_by_their_names() -> None:
    names = [f"train/{name}/new{i}.jpg" for name in ("cat", "dog") for i in range(6)]
    splits = {split_of(name, val_fraction=0, tune_fraction=0.25, seed=0) for name in names}
    assert splits == {"train", "tune"}, "the tests of append want both"
