"""Each image is transcoded once, however many folds have records of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from records_encoding import read_tree
from records_pictures import CASES

from pcr_exp.cli.prepare import prepare
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.datasets.sample import fold_of
from pcr_exp.errors import RecordError
from pcr_exp.records.encode import EncodeReport
from pcr_exp.records.index import parse_index
from pcr_exp.records.prepare import prepare_records, records_folder

NUM_FOLDS = 2


@pytest.fixture
def folded(dataset: FolderConfig) -> FolderConfig:
    """Twelve images in two folds, each with images of both classes."""
    return replace(dataset, num_folds=NUM_FOLDS, fold=0, tune_fraction=0.1)


def ids_of(dataset: FolderConfig) -> set[str]:
    assert dataset.root is not None
    paths = Path(dataset.root).rglob("*.jpg")
    ids = {path.relative_to(dataset.root).as_posix() for path in paths}
    return {id_ for id_ in ids if fold_of(id_, NUM_FOLDS, dataset.split_seed) == dataset.fold}


def test_another_fold_takes_its_images_over(
    folded: FolderConfig, records: RecordsConfig, tmp_path: Path, transcoded: list[bytes]
) -> None:
    """The new records have the same bytes as if made without the first fold."""
    prepare_records(folded, records)
    assert len(transcoded) == 12
    reports: dict[str, EncodeReport] = {}
    other = replace(folded, fold=1)
    folder = prepare_records(other, records, on_report=reports.__setitem__)
    assert len(transcoded) == 12
    assert sum(report.num_reused for report in reports.values()) == 12
    alone = prepare_records(other, replace(records, root=str(tmp_path / "alone")))
    assert len(transcoded) == 24

    def records_in(made: Path) -> dict[str, bytes]:
        return {name: data for name, data in read_tree(made).items() if "source" not in name}

    assert records_in(folder) == records_in(alone)
    index = parse_index((folder / "val/pcr/index.json").read_bytes(), "index")
    assert index.num_samples == len(ids_of(other))


def test_records_without_folds_are_left_alone(
    folded: FolderConfig, records: RecordsConfig, transcoded: list[bytes]
) -> None:
    """Such records may hold other images; only folds are known to share theirs."""
    plain = prepare_records(replace(folded, num_folds=None, fold=None), records)
    before = read_tree(plain)
    prepare_records(folded, records)
    assert len(transcoded) == 24 and read_tree(plain) == before


def test_an_image_that_changed_is_transcoded(
    folded: FolderConfig, records: RecordsConfig, transcoded: list[bytes]
) -> None:
    prepare_records(folded, records)
    assert folded.root is not None
    path = next(Path(folded.root).rglob("*.jpg"))
    contents = [data for data in CASES.values() if data != path.read_bytes()]
    path.write_bytes(contents[0])
    prepare_records(replace(folded, fold=1), records)
    assert transcoded[12:] == [contents[0]]


def test_a_damaged_fold_is_named_with_what_to_do(folded: FolderConfig, records: RecordsConfig) -> None:
    folder = prepare_records(folded, records)
    record = next((folder / "train/pcr").glob("*.pcr"))
    data = bytearray(record.read_bytes())
    data[-3] ^= 0xFF
    record.write_bytes(data)
    with pytest.raises(RecordError, match=f"damaged.*Delete .*{folder.name}, and it will be made again"):
        prepare_records(replace(folded, fold=1), records)


def test_one_command_makes_all_folds(
    folded: FolderConfig,
    records: RecordsConfig,
    transcoded: list[bytes],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = PrepareConfig(dataset=replace(folded, fold=None), records=records)
    with caplog.at_level(logging.INFO):
        assert prepare(config) == "finished"
    folders = [records_folder(replace(folded, fold=fold), records) for fold in range(NUM_FOLDS)]
    assert sorted(path.name for path in Path(records.root).iterdir()) == sorted(folders)
    assert len(transcoded) == 12
    assert "copied from other records" in capsys.readouterr().out
    assert f"reusing encoded images from {Path(records.root) / folders[0]}" in caplog.text
    assert prepare(replace(config, check=True)) == "checked"
    assert capsys.readouterr().out.count("12 images are unchanged since") == NUM_FOLDS
