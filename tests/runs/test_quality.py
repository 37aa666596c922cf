"""Image quality of a run is measured once, on its own crops, and leaves no trace in training."""

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcr_exp.analysis.frame import eval_curves, run_frame
from pcr_exp.analysis.runs import read_runs
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.loading.echo.variants import ExampleBeforeConfig
from pcr_exp.loading.fixed_sample import FixedSample
from pcr_exp.loading.transform import train_transform
from pcr_exp.policies.schedule import ScheduleConfig
from pcr_exp.policies.smallest import MssimConfig
from pcr_exp.records.prepare import prepare_records
from pcr_exp.runs import quality as quality_module
from pcr_exp.runs.data import open_data
from pcr_exp.runs.quality import GroupQuality, groups_read, training_quality
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.system.randomness import Purpose, stream


@pytest.fixture
def own_records(configure: Any, tmp_path: Path) -> Any:
    """Makes configurations whose records have not been measured yet."""
    root = tmp_path / "records"

    def make(**changes: Any) -> Any:
        config = configure(records__root=str(root), **changes)
        prepare_records(config.dataset, RecordsConfig(root=str(root), num_workers=1))
        return config

    return make


def test_it_is_the_similarity_of_the_crops_that_training_gets(own_records: Any) -> None:
    config = own_records(scan__group=2, loader__decode="scaled")
    (measured,) = training_quality(config, progress=False, num_images=6)
    records = open_data(config).train
    sample = FixedSample(records, 6, decode=open_decoder("scaled", "pcr"))
    transform = train_transform(config.crops)
    values = []
    for i in range(6):
        draws = stream(0, Purpose.QUALITY, i).random(transform.num_draws).tolist()
        whole, part = (np.empty((32, 32, 3), dtype=np.uint8) for _ in range(2))
        transform(sample.image(i, 10), draws, whole)
        transform(sample.image(i, 2), draws, part)
        values.append(ms_ssim(whole, part))
    assert measured.ms_ssim_mean == pytest.approx(np.mean([value.value for value in values]))
    assert measured.ms_ssim_std == pytest.approx(np.std([value.value for value in values]))
    assert (measured.group, measured.decode, measured.num_images) == (2, "scaled", 6)
    assert measured.num_scales == values[0].num_scales == 2  # of five, because the crops have 32 px
    assert measured.antialias is config.loader.antialias
    assert 0 < measured.bytes_per_image < records.index.mean_prefix_bytes(2)


def test_baseline_and_all_scans_are_the_whole_by_definition(own_records: Any) -> None:
    (whole,) = training_quality(own_records(scan__group=10), progress=False)
    baseline = own_records(scan__encoding="baseline", scan__group=1)
    (original,) = training_quality(baseline, progress=False)
    assert (whole.ms_ssim_mean, original.ms_ssim_mean, original.group) == (1.0, 1.0, 1)
    assert original.bytes_per_image > whole.bytes_per_image * 0.9


def test_crops_that_have_no_window_have_no_similarity(own_records: Any) -> None:
    (measured,) = training_quality(own_records(training__image_size=8), progress=False)
    assert (measured.ms_ssim_mean, measured.num_scales) == (None, 0)
    assert measured.bytes_per_image > 0


def test_it_is_measured_once_for_all_that_decides_it(
    own_records: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = training_quality(own_records(), progress=False, num_images=4)
    measured = []
    measure = quality_module._Measurement.at
    monkeypatch.setattr(
        quality_module._Measurement,
        "at",
        lambda self, groups, tell: measured.append(groups) or measure(self, groups, tell),
    )

    def again(**changes: Any) -> list[GroupQuality]:
        return training_quality(own_records(**changes), progress=False, num_images=4)

    assert again(seed=3, training__epochs=1, runs_root=str(tmp_path / "others")) == first
    assert measured == []
    for changes in (
        *({"loader__decode": "libjpeg"}, {"loader__antialias": False}, {"training__image_size": 24}),
        {"dataset__augment": replace(own_records().dataset.augment, crop_scale=[0.5, 0.5])},
    ):
        again(**changes)
    assert measured == [[5]] * 4
    again(scan=MssimConfig(name="mssim", candidates=[1, 5]))
    assert measured[-1] == [1, 10]  # group 5 is known; group 10 is read if no candidate is good enough


def test_a_file_is_of_its_images_their_number_and_numerics(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    records = open_data(config, plain=True).train

    def name(num_images: int = 4) -> str:
        return quality_module._Measurement(config, records, num_images).file(1)

    first = name()
    assert name() == first != name(3)
    with monkeypatch.context() as other:
        other.setattr(quality_module, "NUMERICS", quality_module.NUMERICS + 1)
        assert name() != first
    with monkeypatch.context() as other:
        other.setattr(records, "index", replace(records.index, fingerprint="of other records"))
        assert name() != first


def test_a_damaged_measurement_is_made_again(own_records: Any) -> None:
    config = own_records()
    first = training_quality(config, progress=False, num_images=2)
    (kept,) = Path(config.records.root).glob("*/quality/*.json")
    for text in ("{", "[]", json.dumps({"group": 5})):
        kept.write_text(text)
        assert training_quality(config, progress=False, num_images=2) == first


def test_beside_records_that_cannot_be_written_it_is_kept_beside_the_runs(
    own_records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = own_records()
    monkeypatch.setattr(os, "access", lambda *_: False)
    training_quality(config, progress=False, num_images=2)
    assert len(list((Path(config.runs_root) / ".quality").iterdir())) == 1
    assert not list(Path(config.records.root).glob("*/quality"))


def test_where_nothing_can_be_kept_it_is_measured_all_the_same(
    own_records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = own_records()
    Path(config.runs_root).write_text("a file where the folder of runs should be")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert training_quality(config, progress=False, num_images=2)[0].num_images == 2


def test_no_random_number_of_training_is_taken(own_records: Any) -> None:
    config = own_records()
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3).tolist()  # noqa: NPY002
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    training_quality(config, progress=False, num_images=3)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.random.rand(3).tolist() == expected[1]  # noqa: NPY002


@pytest.mark.parametrize(
    ("scan", "groups"),
    [
        (ScanConfig(name="group_3", group=3), [3]),
        (ScheduleConfig(name="schedule", groups=[5, 1], milestones=[1]), [1, 5]),
    ],
)
def test_every_group_that_may_be_read(configure: Any, scan: ScanConfig, groups: list[int]) -> None:
    config = configure(scan=scan)
    index = open_data(config).train.index
    assert groups_read(config, index) == groups
    config.echo = ExampleBeforeConfig(factor=2, repeat_groups=[10])
    assert groups_read(config, index) == [*groups, 10]


def test_a_baseline_is_no_group_1_in_rows_logs_and_tables(
    own_records: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = own_records(scan=ScanConfig(name="baseline", encoding="baseline", group=1))
    with caplog.at_level(logging.INFO):
        folder = run_training(config, progress=False).folder
    rows = read_rows(folder / "rows.jsonl")
    assert rows and {row["scan_group"] for row in rows} == {0}
    told = next(text for text in caplog.messages if text.startswith("quality measured"))
    assert told.startswith("quality measured: MS-SSIM of crops of 32 px of 52 training images, baseline; ")
    assert not [text for text in caplog.messages if "group 1" in text]
    assert any("so far train" in text for text in caplog.messages), "clocks of a row are of the whole run"
    (found,) = read_runs(folder.parent)
    run = replace(found, rows=[{**row, "scan_group": 1} for row in found.rows])  # as in older runs
    assert run_frame([run])["group"].tolist() == [0]
    assert set(eval_curves(run_frame([run]))["scan_group"]) == {0}


def test_the_policys_ms_ssim_is_of_whole_images(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run(MssimConfig(name="mssim", threshold=0.9, num_images=4, candidates=[1, 2]))
    assert any("by mean MS-SSIM of whole images {" in text for text in caplog.messages)
