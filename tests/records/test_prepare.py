"""Records are prepared once from a dataset's configuration."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from records_encoding import read_tree
from records_pictures import PLAIN
from records_storage import FolderStorage

from pcr_exp.config.records import RecordsConfig, records_name
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.errors import ConfigError, ImageError, RecordError, StorageError
from pcr_exp.records import bucket, prepare, sources, staleness
from pcr_exp.records.encode import EncodeReport
from pcr_exp.records.prepare import prepare_records, records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.protocol import WritableStorage


def test_all_splits_are_encoded(dataset: FolderConfig, records: RecordsConfig) -> None:
    told: list[tuple[int, int]] = []
    reports: dict[str, EncodeReport] = {}
    folder = prepare_records(
        dataset, records, progress=lambda *numbers: told.append(numbers), on_report=reports.__setitem__
    )
    assert folder == Path(records.root) / records_name(dataset)
    assert folder.name == records_folder(dataset, records)
    assert sorted(set(told)) == [(done, 12) for done in range(1, 13)]
    assert {split: report.num_images for split, report in reports.items()} == {
        "train": 6,
        "tune": 2,
        "val": 4,
    }
    for split, num_samples in {"train": 6, "tune": 2, "val": 4}.items():
        for encoding in ("pcr", "baseline"):
            index = RecordSet(FolderStorage(Path(records.root)), f"{folder.name}/{split}/{encoding}").index
            assert (index.dataset, index.split, index.num_samples) == ("pets", split, num_samples)
            assert index.classes == {"class": ["cat", "dog"]}
            assert [record.num_samples for record in index.records] == [2] * (num_samples // 2)


def test_done_already_needs_no_dataset(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    monkeypatch.setattr(prepare, "open_dataset", None)
    monkeypatch.setattr(staleness, "open_dataset", None)
    assert prepare_records(dataset, records, thorough=False) == folder
    shutil.rmtree(str(dataset.root))
    assert prepare_records(dataset, records) == folder
    assert prepare_records(replace(dataset, root=None), records) == folder
    assert read_tree(folder) == before


@pytest.mark.parametrize("split", ["train", "tune", "val"])
def test_a_split_that_is_missing_is_made(dataset: FolderConfig, records: RecordsConfig, split: str) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    shutil.rmtree(folder / split)
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
    monkeypatch.setattr(staleness, "open_dataset", None)
    assert prepare_records(moved, records, thorough=False) == folder


def test_other_files_are_not_taken_for_those_of_the_records(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    prepare_records(dataset, records)
    shutil.copytree(tmp_path / "in", tmp_path / "other")
    (tmp_path / "other/train/cat/more.jpg").write_bytes(PLAIN)
    other = replace(dataset, root=str(tmp_path / "other"))
    with pytest.raises(RecordError, match=r"1 added: train/cat/more\.jpg\..*its own name: dataset\.name="):
        prepare_records(other, records)
    with pytest.raises(RecordError, match=r"made from, in .*/in: 1 added"):
        prepare_records(other, records, thorough=False)
    assert prepare_records(replace(other, name="others"), records).name.startswith("others-")


def test_a_missing_note_of_the_source_costs_a_comparison_only(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    (folder / "source.json").unlink()

    def read_only(path: Path, _: object) -> None:
        raise StorageError(f"{path} cannot be written")

    monkeypatch.setattr(sources, "write_atomic", read_only)
    reports: dict[str, EncodeReport] = {}
    assert prepare_records(dataset, records, on_report=reports.__setitem__) == folder
    assert all(report.num_turned is None for report in reports.values())


@pytest.mark.parametrize("root", ["s3://bucket/records", "file:///tmp/records", "memory://records"])
def test_records_are_written_locally_only(dataset: FolderConfig, root: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"root='{root}': wanted a local folder, because records are made there"
    ):
        prepare_records(dataset, RecordsConfig(root=root))


def test_on_error_is_heeded(dataset: FolderConfig, records: RecordsConfig) -> None:
    bad = Path(str(dataset.root)) / "train/cat/3.jpg"
    bad.write_bytes(b"")
    with pytest.raises(ImageError, match=r"cat/3\.jpg: zero-byte file.*records\.on_error=skip"):
        prepare_records(dataset, records)
    folder = prepare_records(dataset, replace(records, on_error="skip"))
    assert (folder / "train/rejected.csv").read_text() == "id,reason\ntrain/cat/3.jpg,zero-byte file\n"


def test_without_images_to_tune_by_their_index_says_so(dataset: FolderConfig, records: RecordsConfig) -> None:
    folder = prepare_records(replace(dataset, tune_fraction=0.0), records)
    for encoding in ("pcr", "baseline"):
        index = RecordSet(FolderStorage(folder), f"tune/{encoding}").index
        assert (index.split, index.num_samples, index.records) == ("tune", 0, [])


def test_fewer_images_to_look_at_are_read_from_the_same_records(
    dataset: FolderConfig, records: RecordsConfig
) -> None:
    folder = prepare_records(dataset, records)
    before = read_tree(folder)
    assert prepare_records(replace(dataset, max_val_images=3, max_tune_images=1), records) == folder
    assert read_tree(folder) == before
    storage = FolderStorage(folder)
    whole, few = (RecordSet(storage, "val/baseline", num) for num in (None, 3))
    assert [record.num_samples for record in few.index.records] == [2, 1]
    assert few.index.num_samples == 3
    for record in (0, 1):
        all_of_it, part = whole.read_prefix(record, 1), few.read_prefix(record, 1)
        assert part.ids == all_of_it.ids[: len(part)]
        assert [part.encoded(i) for i in range(len(part))] == [all_of_it.encoded(i) for i in range(len(part))]
        assert part.labels["class"].tolist() == all_of_it.labels["class"].tolist()[: len(part)]
    assert len(part) == 1
    with pytest.raises(IndexError, match="sample 1 is out of range for a record of 1"):
        part.encoded(1)
    assert RecordSet(storage, "val/baseline", 100).index == whole.index


def test_records_of_two_names_lie_beside_each_other(dataset: FolderConfig, records: RecordsConfig) -> None:
    one, other = (prepare_records(replace(dataset, name=name), records) for name in ("cats", "dogs"))
    assert one.parent == other.parent and one.name.startswith("cats-") and other.name.startswith("dogs-")
    assert one.name.removeprefix("cats-") == other.name.removeprefix("dogs-")


def test_images_of_other_records_are_taken_over(
    dataset: FolderConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    """Their previous splits and records do not matter; here, other images were held out."""
    old = prepare_records(replace(dataset, split_seed=5, images_per_record=3), records)
    fresh = prepare_records(dataset, replace(records, root=str(tmp_path / "fresh")))
    reports: dict[str, EncodeReport] = {}
    reusing = replace(records, root=str(tmp_path / "new"), reuse_from=str(old))
    new = prepare_records(dataset, reusing, on_report=reports.__setitem__)
    assert read_tree(new) == read_tree(fresh)
    assert {split: report.num_reused for split, report in reports.items()} == {
        "train": 6,
        "tune": 2,
        "val": 4,
    }


@pytest.mark.parametrize(
    "change",
    [{"root": 5}, {"folders": {"/x": ["a"]}}, {"tables": []}, {"remarks": [1]}, {"more": 1}, None],
    ids=str,
)
def test_a_damaged_note_of_the_source_is_as_none(
    dataset: FolderConfig, records: RecordsConfig, change: dict[str, object] | None
) -> None:
    folder = prepare_records(dataset, records)
    path = folder / sources.SOURCE_FILE
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | change) if change else "[" * 100_000)
    assert sources.read_source(folder) is None
    assert prepare_records(dataset, records) == folder


def test_a_table_of_images_that_unpacks_to_any_size_is_not_unpacked(
    dataset: FolderConfig, records: RecordsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare_records(dataset, records)
    monkeypatch.setattr(sources, "_MAX_IMAGES_BYTES", 4 * 2**20)
    (folder / sources.IMAGES_FILE).write_bytes(gzip.compress(b"0" * 2**28))
    tracemalloc.start()
    assert sources.read_images(folder) is None
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_what_another_encode_wrote_beside_records_stays_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = create_autospec(WritableStorage, instance=True)
    storage.write.return_value = False
    (tmp_path / sources.SOURCE_FILE).write_text("{}")
    bucket._send_small(tmp_path, storage, "pets", {}, [sources.SOURCE_FILE, sources.IMAGES_FILE])
    assert "pets/source.json was written by another encode and is left unchanged" in caplog.text
    storage.write.assert_called_once_with("pets/source.json", b"{}", replaces=None)
