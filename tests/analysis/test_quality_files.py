"""Quality measurements on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.quality import (
    SET_COLUMNS,
    caption_of,
    load_quality,
    metas_by_name,
    read_metas,
    write_quality,
)
from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import QUALITY_COLUMNS, summarise_quality
from pcr_exp.records.index import RecordEntry, RecordIndex

ROWS = pd.DataFrame(
    [["a.jpg", 1, 600, 0.8, 5, 0.7, 320, 240], ["a.jpg", 10, 9000, 1.0, 5, 1.0, 320, 240]],
    columns=QUALITY_COLUMNS,
)

DECODED = {"decode": "libjpeg", "antialias": False}


def index(dataset: str, fingerprint: str = "") -> RecordIndex:
    return RecordIndex(
        dataset=dataset,
        split="val",
        encoding="pcr",
        fingerprint=fingerprint or f"key of {dataset}",
        num_groups=10,
        classes={"kind": ["photo"]},
        records=[RecordEntry("00000.pcr", 7, tuple(range(100, 1100, 100)), 30)],
    )


def test_what_is_written_is_read_back_with_its_dataset(tmp_path: Path) -> None:
    write_quality(tmp_path / "photos", ROWS, index("photos"), DECODED)
    write_quality(tmp_path / "cars", ROWS.iloc[:1], index("cars"), DECODED)
    quality = load_quality(tmp_path)
    assert quality["dataset"].tolist() == ["cars", "photos", "photos"]
    of_photos = quality[quality["dataset"] == "photos"].reset_index(drop=True)
    pd.testing.assert_frame_equal(of_photos[QUALITY_COLUMNS], ROWS)
    keys = of_photos[SET_COLUMNS].iloc[0].tolist()
    assert keys == ["photos", "val", "key of photos", "libjpeg", False]
    written = pd.read_csv(tmp_path / "photos" / "quality_summary.csv")
    pd.testing.assert_frame_equal(written, summarise_quality(ROWS), check_dtype=False)


def test_a_measurement_says_where_it_comes_from(tmp_path: Path) -> None:
    write_quality(tmp_path, ROWS, index("photos"), DECODED)
    meta = json.loads((tmp_path / "quality.json").read_text())
    assert (meta["dataset"], meta["split"], meta["fingerprint"]) == ("photos", "val", "key of photos")
    assert (meta["num_images"], meta["num_images_in_split"], meta["groups"]) == (1, 7, [1, 10])
    assert meta["packages"]["pytorch-msssim"] and meta["packages"]["scikit-image"]
    assert meta["cpu"] and meta["num_cores"] >= 1 and meta["command"] and meta["measured_at"]
    assert {"git_sha", "git_dirty"} <= meta.keys()


def test_no_measurements_are_an_empty_table(tmp_path: Path) -> None:
    assert load_quality(tmp_path / "nothing").empty
    assert "ms_ssim" in load_quality(tmp_path).columns


def test_of_two_measurements_of_the_same_records_the_larger_one_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = pd.concat([ROWS, ROWS.assign(id="b.jpg")], ignore_index=True)
    for name, rows in (("a", ROWS), ("b", more), ("c", ROWS.iloc[:1])):
        write_quality(tmp_path / name, rows, index("photos"), DECODED)
    assert load_quality(tmp_path)["id"].tolist() == ["a.jpg", "a.jpg", "b.jpg", "b.jpg"]
    assert [path.parent.name for path, _ in read_metas(tmp_path)] == ["b"]
    for name in ("a", "c"):
        assert (
            f"{tmp_path / name} is left out: it measures the same images as {tmp_path / 'b'}" in caplog.text
        )


def test_sets_of_one_name_are_told_apart_by_their_key_and_decode_mode(tmp_path: Path) -> None:
    write_quality(tmp_path / "a", ROWS.iloc[:1], index("pets", "aaaa1111"), DECODED)
    write_quality(tmp_path / "b", ROWS.iloc[:1], index("pets", "bbbb2222"), DECODED)
    write_quality(tmp_path / "c", ROWS.iloc[:1], index("pets", "bbbb2222"), DECODED | {"decode": "scaled"})
    names = load_quality(tmp_path)["dataset"].tolist()
    assert names == ["pets aaaa, libjpeg", "pets bbbb, libjpeg", "pets bbbb, scaled"]


def test_the_caption_counts_the_images_of_every_measurement_of_a_name(tmp_path: Path) -> None:
    more = pd.concat([ROWS, ROWS.assign(id="b.jpg")])
    write_quality(tmp_path / "a", ROWS, index("photos", "abcd"), DECODED)
    write_quality(tmp_path / "b", more, index("photos", "efgh"), DECODED)
    caption = caption_of(metas_by_name(tmp_path), "Quality", "whole images")
    assert caption.n == "n = 1 to 2 images each"


@pytest.mark.parametrize("name", ["quality.json", "quality.csv"])
def test_a_damaged_measurement_is_named(tmp_path: Path, name: str) -> None:
    write_quality(tmp_path, ROWS, index("photos"), DECODED)
    (tmp_path / name).write_text("")
    with pytest.raises(RunError, match=r"quality\.json or quality\.csv.*damaged.*experiments\.quality"):
        load_quality(tmp_path)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    write_quality(tmp_path, ROWS, index("photos"), DECODED)
    ROWS.drop(columns="ssim").to_csv(tmp_path / "quality.csv", index=False)
    with pytest.raises(RunError, match=r"quality\.csv has columns .*wanted"):
        load_quality(tmp_path)
