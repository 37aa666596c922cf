"""Quality rows against the records they were measured on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pandas as pd
import pytest
import skimage.data
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.decode import open_decoder
from pcr_exp.loading.fixed_sample import FixedSample, mean_similarities
from pcr_exp.measuring.quality import QUALITY_COLUMNS, measure_quality, spread_evenly, summarise_quality
from pcr_exp.records.encode import encode_split
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

GROUPS = [1, 2, 5, 10]


def encode(folder: Path, images: list[np.ndarray]) -> LocalStorage:
    """Encode records of three images each; ids are 0.jpg, 1.jpg, ..."""
    samples = []
    for i, image in enumerate(images):
        path = folder / f"{i}.jpg"
        cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 90])
        samples.append(Sample(id=path.name, path=path, labels={"kind": 0}))
    encode_split(
        samples,
        {"kind": ["photo"]},
        folder / "records",
        dataset="test",
        split="val",
        images_per_record=3,
    )
    return LocalStorage(folder / "records")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> LocalStorage:
    cat = skimage.data.chelsea()[..., ::-1]
    colour = [cat[:, 30 * i : 30 * i + 180 + 10 * i] for i in range(7)]
    return encode(tmp_path_factory.mktemp("quality"), [*colour, skimage.data.coins()[:150, :200]])


@pytest.fixture(scope="module")
def quality(storage: LocalStorage) -> pd.DataFrame:
    return measure_quality(RecordSet(storage, "pcr"), GROUPS, max_images=100, num_workers=2)


def test_one_row_per_image_and_group_in_the_splits_order(quality: pd.DataFrame) -> None:
    assert list(quality.columns) == QUALITY_COLUMNS
    assert quality["id"].tolist() == [f"{i}.jpg" for i in range(8) for _ in GROUPS]
    assert quality["group"].tolist() == GROUPS * 8
    assert quality["width_px"].tolist()[:8] == [180] * 4 + [190] * 4
    assert set(quality["height_px"]) == {300, 150}
    assert dict(zip(quality["id"], quality["num_scales"], strict=True))["7.jpg"] == 4


def test_bytes_are_those_that_the_record_holds_of_the_image(
    storage: LocalStorage, quality: pd.DataFrame
) -> None:
    records = RecordSet(storage, "pcr")
    stored = {
        (sample_id, group): len(prefix.encoded(i)) - len(b"\xff\xd9")
        for group in GROUPS
        for prefix in (records.read_prefix(r, group) for r in range(len(records.index.records)))
        for i, sample_id in enumerate(prefix.ids)
    }
    measured = {(row["id"], row["group"]): row["bytes"] for row in quality.to_dict("records")}
    assert measured == stored


def test_quality_rises_with_the_group_to_one(quality: pd.DataFrame) -> None:
    for measure in ("ms_ssim", "ssim"):
        by_image = quality.pivot(index="id", columns="group", values=measure)
        assert by_image[10].to_numpy() == pytest.approx(1, abs=1e-6)
        assert (by_image.diff(axis=1).iloc[:, 1:] > 0).all(axis=None)
        assert (by_image[1] < 0.97).all()


def test_same_rows_at_any_worker_count_and_progress_counts_images(
    storage: LocalStorage, quality: pd.DataFrame
) -> None:
    told: list[tuple[int, int]] = []
    again = measure_quality(
        RecordSet(storage, "pcr"), [10, 5, 2, 1], 100, num_workers=1, progress=lambda *seen: told.append(seen)
    )
    pd.testing.assert_frame_equal(again, quality)
    assert told == [(done, 8) for done in range(1, 9)]


def test_needed_records_are_read_once_and_the_others_not(storage: LocalStorage) -> None:
    counting = CountingStorage(storage)
    records = RecordSet(counting, "pcr")
    before = counting.num_reads
    rows = measure_quality(records, [1], max_images=2)
    assert rows["id"].tolist() == ["2.jpg", "6.jpg"]
    assert counting.num_reads - before == 2
    assert counting.bytes_read >= records.index.prefix_bytes(0, 10) + records.index.prefix_bytes(2, 10)


def test_images_are_not_read_far_ahead(tmp_path: Path) -> None:
    images = [skimage.data.camera()[i : i + 64, :64] for i in range(12)]
    counting = CountingStorage(encode(tmp_path, images))
    records = RecordSet(counting, "pcr")
    before, read_by_the_first = counting.num_reads, []

    def progress(done: int, _total: int) -> None:
        if done == 1:
            read_by_the_first.append(counting.num_reads - before)

    assert len(measure_quality(records, [1], max_images=12, progress=progress)) == 12
    assert counting.num_reads - before == 4 and read_by_the_first[0] < 4


@given(st.integers(1, 5000), st.data())
def test_chosen_images_are_spread_evenly(num_samples: int, data: st.DataObject) -> None:
    num_chosen = data.draw(st.integers(1, num_samples))
    chosen = spread_evenly(num_samples, num_chosen)
    gaps = np.diff(np.concatenate([chosen, [chosen[0] + num_samples]]))
    assert len(chosen) == num_chosen
    assert chosen[0] >= 0 and chosen[-1] < num_samples
    assert gaps.min() >= 1
    assert gaps.max() - gaps.min() <= 1


def test_the_baseline_has_no_scan_groups(storage: LocalStorage) -> None:
    with pytest.raises(RecordError, match=r"test/val.*'baseline'.*one fidelity"):
        measure_quality(RecordSet(storage, "baseline"), [1], 1)


def test_a_group_that_is_not_there_is_named(storage: LocalStorage) -> None:
    with pytest.raises(RecordError, match="11"):
        measure_quality(RecordSet(storage, "pcr"), [1, 11], 1)


def test_an_empty_split_is_refused() -> None:
    index = SimpleNamespace(encoding="pcr", dataset="test", split="val", num_samples=0)
    with pytest.raises(RecordError, match=r"test/val.*no images"):
        measure_quality(SimpleNamespace(index=index), [], 1)  # type: ignore[arg-type]


def test_images_smaller_than_the_window_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    camera = skimage.data.camera()
    records = RecordSet(encode(tmp_path, [camera[:64, :64], camera[:8, :64], camera[:64, :10]]), "pcr")
    sample = FixedSample(records, 10, decode=open_decoder("libjpeg", "pcr"))
    rows = measure_quality(records, [1, 10], 10)
    assert rows["id"].tolist() == ["0.jpg", "0.jpg"]
    assert mean_similarities(sample, [1, 10]) == dict(zip(rows["group"], rows["ms_ssim"], strict=True))
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "2 of 3 images are smaller than 11 px on a side, and are left out"
    ] * 2


def test_images_that_are_all_smaller_than_the_window_cannot_be_measured(tmp_path: Path) -> None:
    records = RecordSet(encode(tmp_path, [skimage.data.camera()[:8, :64]] * 2), "pcr")
    wanted = "all 2 images are smaller than 11 px on a side; wanted at least one larger image"
    with pytest.raises(ImageError, match=rf"test/val .*: {wanted}"):
        measure_quality(records, [1], 10)
    with pytest.raises(ImageError, match=rf"{wanted}.*another scan policy than mssim"):
        mean_similarities(FixedSample(records, 10, decode=open_decoder("libjpeg", "pcr")), [1])


def test_summary_has_n_mean_and_spread_per_group(quality: pd.DataFrame) -> None:
    summary = summarise_quality(quality)
    assert summary["group"].tolist() == GROUPS
    assert summary["n"].tolist() == [8] * 4
    assert summary["min_num_scales"].tolist() == [4] * 4
    second = summary.set_index("group").loc[2]
    for measure in ("bytes", "ms_ssim", "ssim"):
        values = quality.loc[quality["group"] == 2, measure].to_numpy()
        assert second[f"{measure}_mean"] == pytest.approx(values.mean())
        assert second[f"{measure}_std"] == pytest.approx(values.std(ddof=1))
        assert second[f"{measure}_p5"] == pytest.approx(np.percentile(values, 5))
        assert second[f"{measure}_p95"] == pytest.approx(np.percentile(values, 95))
