"""MS-SSIM of training crops per decode mode, on records of real photographs."""

from typing import Any

import numpy as np
import pytest

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.errors import RecordError
from pcr_exp.measuring import quality
from pcr_exp.measuring.quality import CROP_COLUMNS, measure_crops, summarise_crops
from pcr_exp.records.prepare import prepare_records
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

MODES = ["libjpeg", "unsmoothed", "scaled"]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> RecordSet:
    root = tmp_path_factory.mktemp("records")
    dataset = PhotosConfig(
        name="photos",
        root=str(root / "photos"),
        label="photo",
        images_per_record=8,
        targets={"top1": 0.5},
        num_train=8,
        num_val=16,
    )
    folder = prepare_records(dataset, RecordsConfig(root=str(root), num_workers=1))
    return RecordSet(LocalStorage(folder), "val/pcr")


def test_every_mode_of_every_group_is_measured_on_the_same_crop(records: RecordSet) -> None:
    told = []
    crops = measure_crops(
        records, [10, 1, 2], MODES, 6, 176, progress=lambda done, total: told.append((done, total))
    )
    assert list(crops.columns) == CROP_COLUMNS
    assert len(crops) == 6 * 3 * 3 and crops["id"].nunique() == 6
    assert told[-1] == (6, 6)
    means = crops.groupby(["decode", "group"])["ms_ssim"].mean().unstack()
    assert (means[10] == 1).all(), "all scans are there: every mode decodes the same pixels"
    assert (means[1] < means[2]).all() and (means[2] < 1).all()
    assert np.ptp(means[1]) < 0.1, "modes show the same place; else similarity would be far off"


def test_a_seed_gives_the_same_crops_and_another_one_others(records: RecordSet) -> None:
    first, again, other = (measure_crops(records, [1], ["scaled"], 4, 176, seed=s) for s in (0, 0, 1))
    assert first.equals(again)
    assert not first["ms_ssim"].equals(other["ms_ssim"])


def test_every_image_has_a_crop_of_its_own(records: RecordSet, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, ...]] = []
    stream = quality.stream

    def noted(*key: int) -> Any:
        drawn.append(key)
        return stream(*key)

    monkeypatch.setattr(quality, "stream", noted)
    measure_crops(records, [1], ["libjpeg"], 4, 176)
    assert len(set(drawn)) == 4


def test_the_summary_is_paired_by_crop(records: RecordSet) -> None:
    crops = measure_crops(records, [1, 2], MODES, 5, 176)
    summary = summarise_crops(crops).set_index("group")
    one = crops[crops["group"] == 1].pivot(index="id", columns="decode", values="ms_ssim")
    difference = one["scaled"] - one["libjpeg"]
    assert summary.loc[1, "n"] == 5
    assert summary.loc[1, "scaled_mean"] == pytest.approx(one["scaled"].mean())
    assert summary.loc[1, "scaled_minus_libjpeg"] == pytest.approx(difference.mean())
    assert summary.loc[1, "scaled_minus_libjpeg_sem"] == pytest.approx(difference.std() / 5**0.5)


def test_a_group_that_the_records_lack_is_refused(records: RecordSet) -> None:
    with pytest.raises(RecordError, match="group 11"):
        measure_crops(records, [11], MODES, 1, 176)
