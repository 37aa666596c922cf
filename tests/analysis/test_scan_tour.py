"""One picture, scan by scan."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import skimage.data

from pcr_exp.analysis.one_image import (
    PAPER_GROUPS,
    draw_scan_tour,
    most_changed_square,
    read_jpeg,
    tour_scans,
    write_sample_image,
)
from pcr_exp.errors import ConfigError
from pcr_exp.images.decode import decode
from pcr_exp.images.transcode import to_progressive

RESULTS = Path(__file__).parents[2] / "results" / "sample_image"

pytestmark = pytest.mark.usefixtures("light_figures")


def test_tour_shows_growing_bytes_and_quality_and_ends_in_the_picture() -> None:
    _, data = cv2.imencode(".jpg", skimage.data.chelsea()[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])
    jpeg = to_progressive(data.tobytes())
    tour = tour_scans(jpeg)
    assert tour["group"].tolist() == [1, 2, 5, 10]
    assert tour["bytes"].is_monotonic_increasing
    assert tour["bytes"].iloc[-1] == len(jpeg) - len(b"\xff\xd9")
    assert tour["ms_ssim"].is_monotonic_increasing
    assert tour["ms_ssim"].iloc[-1] == pytest.approx(1, abs=1e-6)
    assert np.array_equal(tour["image"].iloc[-1], decode(data.tobytes()))

    figure = draw_scan_tour(tour)
    top, left, side = most_changed_square(tour["image"].iloc[0], tour["image"].iloc[-1])
    wholes, details = figure.axes[:4], figure.axes[4:]
    for whole, detail, row in zip(wholes, details, tour.to_dict("records"), strict=True):
        assert np.array_equal(whole.images[0].get_array(), row["image"])
        square = row["image"][top : top + side, left : left + side]
        assert np.array_equal(detail.images[0].get_array(), square)
        assert whole.get_title(loc="left").startswith(f"group {row['group']} · ")
        assert f"MS-SSIM {row['ms_ssim']:.3f}" in whole.get_xlabel()


def test_the_enlarged_square_is_where_images_differ_most() -> None:
    first = np.zeros((40, 60, 3), np.uint8)
    last = first.copy()
    last[25:35, 31:41] = 9
    assert most_changed_square(first, last) == (25, 31, 10)


def test_the_committed_picture_is_what_its_command_draws(tmp_path: Path) -> None:
    """Pillow's JPEG may differ by some bytes from version to version."""
    (table,) = [
        path for path in write_sample_image("astronaut", PAPER_GROUPS, tmp_path) if path.suffix == ".csv"
    ]
    committed = pd.read_csv(RESULTS / "sample_image.csv")
    pd.testing.assert_frame_equal(pd.read_csv(table), committed, rtol=0.01)
    assert (RESULTS / "sample_image.png").stat().st_size > 100_000


def test_an_image_of_ones_own_is_shown_and_stays_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "own.jpg"
    cv2.imwrite(str(own), skimage.data.coffee()[:96, :128, ::-1])
    before = own.read_bytes()
    assert read_jpeg(str(own)) == before
    files = write_sample_image(str(own), [1, 10], tmp_path / "out")
    assert [path.name for path in files] == [f"sample_image.{kind}" for kind in ("pdf", "png", "csv")]
    assert pd.read_csv(files[2])["group"].tolist() == [1, 10]
    assert own.read_bytes() == before


def test_an_image_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="image=monalisa: no such file; wanted a JPEG file, or one of astronaut"
    ):
        read_jpeg("monalisa")
