"""New images are appended to existing records."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from records_changes import CHANGES, SPLITS, indexes, stored
from records_encoding import read_tree
from records_pictures import CASES, PLAIN

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.records import index_table as stored_index
from pcr_exp.records import one_record
from pcr_exp.records.fingerprint import joint_images_key
from pcr_exp.records.index import EntryTable, parse_index
from pcr_exp.records.prepare import check_records, prepare_records
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage


def more_of_each_split(root: Path) -> list[str]:
    """Add new training images, some of which fall into `tune`, and new validation images."""
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
    load = one_record.load_image
    monkeypatch.setattr(
        one_record, "load_image", lambda path, *rest: encoded.append(path) or load(path, *rest)
    )
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
    prepare_records(dataset, records)  # recognised by its images, as whenever source.json is lost
    assert prepare_records(dataset, replace(records, on_change="append")) == folder


def test_the_table_of_a_large_index_grows_with_it(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_index, "LARGE_BYTES", 500)
    folder = prepare_records(dataset, records)
    for _ in range(2):
        for encoding in ("pcr", "baseline"):
            found = RecordSet(LocalStorage(folder), f"train/{encoding}").index
            assert isinstance(found.records, EntryTable)
            data = (folder / "train" / encoding / "index.json").read_bytes()
            assert list(found.records) == parse_index(data, "it").records
        more_of_each_split(Path(str(dataset.root)))
        prepare_records(dataset, replace(records, on_change="append"))
    assert [entry.fingerprint is None for entry in found.records].count(False) > 0
    assert check_records(dataset, records).startswith("26 images")


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
    with pytest.raises(
        RecordError, match=r"append is not possible: the records hold images that were removed or"
    ):
        prepare_records(dataset, replace(records, on_change="append"))


def test_append_is_refused_with_a_new_class(dataset: FolderConfig, records: RecordsConfig) -> None:
    prepare_records(dataset, records)
    for split in ("train", "val"):
        for i in range(4):
            path = Path(str(dataset.root)) / split / f"eel/{i}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(PLAIN)
    with pytest.raises(
        RecordError, match=r"holds records whose classes differ from those that pets has now.*reencode"
    ):
        prepare_records(dataset, replace(records, on_change="append"))


def test_an_append_that_was_stopped_is_not_continued_over_other_images(
    dataset: FolderConfig, records: RecordsConfig
) -> None:
    """The stopped append had added a training image, and failed at a validation image."""
    folder, root = prepare_records(dataset, records), Path(str(dataset.root))
    (root / "train/cat/new_a.jpg").write_bytes(PLAIN)
    (root / "val/cat/new_b.jpg").write_bytes(PLAIN[:200])
    append = replace(records, on_change="append")
    with pytest.raises(ImageError):
        prepare_records(dataset, append)
    (root / "val/cat/new_b.jpg").write_bytes(PLAIN)
    (root / "train/cat/new_c.jpg").write_bytes(PLAIN)
    with pytest.raises(
        RecordError, match=r"does not hold the images that source_images\.csv\.gz next to it lists"
    ):
        prepare_records(dataset, append)
    prepare_records(dataset, replace(records, on_change="reencode"))
    assert {"train/cat/new_a.jpg", "train/cat/new_c.jpg"} <= set(stored(folder, "pcr"))


def test_nothing_is_appended_beside_replaced_images(dataset: FolderConfig, records: RecordsConfig) -> None:
    """The replaced image is noticed even without source.json, which notes what the records were made from."""
    folder = prepare_records(dataset, records)
    (folder / "source.json").unlink()
    CHANGES["overwrite"][0](Path(str(dataset.root)))
    with pytest.raises(RecordError):
        prepare_records(dataset, replace(records, on_change="append"))
