"""One picture through its scans."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import skimage.data

from pcr_exp.analysis.quality.figures import draw_scan_tour, tour_scans
from pcr_exp.images.decode import decode
from pcr_exp.images.transcode import to_progressive


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
    for ax, row in zip(figure.axes, tour.to_dict("records"), strict=True):
        assert np.array_equal(ax.images[0].get_array(), row["image"])
        assert ax.get_title(loc="left") == f"group {row['group']}"
        assert f"MS-SSIM {row['ms_ssim']:.3f}" in ax.get_xlabel()
