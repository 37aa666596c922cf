"""MS-SSIM agrees with two other implementations on photographs."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import skimage.data
import torch
from scipy.ndimage import gaussian_filter1d
from torch.nn.functional import avg_pool2d
from torchmetrics.functional.image import structural_similarity_index_measure as torchmetrics_ssim

from pcr_exp.errors import ImageError
from pcr_exp.images.ms_ssim import SCALE_WEIGHTS, ms_ssim, ssim

PHOTOS = ("chelsea", "rocket")


def photo(name: str) -> np.ndarray:
    """uint8 [H, W, 3]"""
    return getattr(skimage.data, name)()


def through_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.imdecode(data, cv2.IMREAD_UNCHANGED)


def numpy_ms_ssim(reference: np.ndarray, image: np.ndarray, num_scales: int = 5) -> float:
    """Equation 7 of the paper in float64, one channel at a time, without windows that cross the border."""
    multiple = 2 ** (num_scales - 1)
    height, width = (side // multiple * multiple for side in reference.shape[:2])
    weights = np.array(SCALE_WEIGHTS[:num_scales]) / sum(SCALE_WEIGHTS[:num_scales]) * sum(SCALE_WEIGHTS)
    values = []
    for channel in range(3):
        x = reference[:height, :width, channel].astype(float)
        y = image[:height, :width, channel].astype(float)
        value = 1.0
        for scale in range(num_scales):
            mean_x, mean_y, xx, yy, xy = (windowed(a) for a in (x, y, x * x, y * y, x * y))
            luminance = (2 * mean_x * mean_y + 2.55**2) / (mean_x**2 + mean_y**2 + 2.55**2)
            contrast = (2 * (xy - mean_x * mean_y) + 7.65**2) / (xx - mean_x**2 + yy - mean_y**2 + 7.65**2)
            term = (luminance * contrast if scale == num_scales - 1 else contrast).mean()
            value *= max(term, 0) ** weights[scale]
            x, y = (
                a.reshape(len(a) // 2, 2, -1, 2).mean((1, 3)) if scale < num_scales - 1 else a for a in (x, y)
            )
        values.append(value)
    return float(np.mean(values))


def torchmetrics_ms_ssim(x: torch.Tensor, y: torch.Tensor) -> float:
    """torchmetrics' SSIM terms without the border, with channels as the batch.

    Unlike the paper, its own multi-scale function includes a mirrored border in the SSIM of the coarsest
    scale, which moves the result by up to 0.005. Its contrast terms leave the border out.
    """
    options = {"data_range": 255.0, "reduction": "none"}
    value = torch.ones(len(x))
    for weight in SCALE_WEIGHTS[:-1]:
        _, contrast = torchmetrics_ssim(x, y, return_contrast_sensitivity=True, **options)
        value *= contrast.clamp(min=0) ** weight
        x, y = avg_pool2d(x, 2), avg_pool2d(y, 2)
    _, full = torchmetrics_ssim(x, y, return_full_image=True, **options)
    return float((value * full[..., 5:-5, 5:-5].mean((1, 2, 3)) ** SCALE_WEIGHTS[-1]).mean())


def windowed(plane: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        plane = gaussian_filter1d(plane, sigma=1.5, radius=5, axis=axis)
    return plane[5:-5, 5:-5]


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("quality", [2, 10, 50])
def test_agrees_with_two_other_implementations(name: str, quality: int) -> None:
    reference = photo(name)
    image = through_jpeg(reference, quality)
    ours = ms_ssim(reference, image)
    assert ours.num_scales == 5
    assert ours.value == pytest.approx(numpy_ms_ssim(reference, image), abs=1e-4)

    height, width = (side // 16 * 16 for side in reference.shape[:2])
    x, y = (
        torch.from_numpy(a[:height, :width].astype(np.float32)).permute(2, 0, 1) for a in (image, reference)
    )
    assert ours.value == pytest.approx(torchmetrics_ms_ssim(x[:, None], y[:, None]), abs=1e-4)
    assert 0.3 < ours.value < 0.999


@pytest.mark.parametrize(
    ("side", "num_scales"), [(176, 5), (175, 4), (88, 4), (87, 3), (44, 3), (43, 2), (21, 1), (11, 1)]
)
def test_small_pictures_use_fewer_scales(side: int, num_scales: int) -> None:
    reference = photo("chelsea")[50 : 50 + side, 100 : 100 + side + 7]
    image = through_jpeg(reference, 20)
    ours = ms_ssim(reference, image)
    assert ours.num_scales == num_scales
    assert ours.value == pytest.approx(numpy_ms_ssim(reference, image, num_scales), abs=1e-4)
    assert ours.value < 1


def test_one_for_the_same_picture_and_falling_with_quality() -> None:
    reference = photo("chelsea")
    values = [ms_ssim(reference, through_jpeg(reference, quality)).value for quality in (2, 10, 30, 90)]
    assert values == sorted(values)
    assert ms_ssim(reference, reference).value == pytest.approx(1, abs=1e-6)


def test_symmetric_and_zero_at_worst() -> None:
    reference = photo("chelsea")
    image = through_jpeg(reference, 5)
    assert ms_ssim(reference, image).value == pytest.approx(ms_ssim(image, reference).value, abs=1e-6)
    for of_any_size in (reference, reference[50:114, 100:164]):
        assert ms_ssim(of_any_size, 255 - of_any_size).value == 0


def test_ssim_is_that_of_its_paper() -> None:
    reference = photo("chelsea")
    image = through_jpeg(reference, 10)
    values = []
    for channel in range(3):
        x, y = (picture[..., channel].astype(float) for picture in (reference, image))
        mean_x, mean_y, xx, yy, xy = (windowed(plane) for plane in (x, y, x * x, y * y, x * y))
        luminance = (2 * mean_x * mean_y + 2.55**2) / (mean_x**2 + mean_y**2 + 2.55**2)
        contrast = (2 * (xy - mean_x * mean_y) + 7.65**2) / (xx - mean_x**2 + yy - mean_y**2 + 7.65**2)
        values.append((luminance * contrast).mean())
    assert ssim(reference, image) == pytest.approx(np.mean(values), abs=1e-5)


def test_grey_equals_the_same_grey_in_three_channels() -> None:
    grey = cv2.cvtColor(photo("rocket"), cv2.COLOR_RGB2GRAY)
    worse = through_jpeg(grey, 10)
    in_colour = ms_ssim(np.repeat(grey[..., None], 3, 2), np.repeat(worse[..., None], 3, 2))
    assert ms_ssim(grey, worse).value == pytest.approx(in_colour.value, abs=1e-6)


@pytest.mark.parametrize(
    ("reference", "image", "reason"),
    [
        (np.zeros((64, 64, 3), np.uint8), np.zeros((64, 63, 3), np.uint8), "the same shape"),
        (np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64, 3), np.float32), "float32"),
        (np.zeros((64, 64, 4), np.uint8), np.zeros((64, 64, 4), np.uint8), r"\[H, W, 3\]"),
        (np.zeros((400, 10, 3), np.uint8), np.zeros((400, 10, 3), np.uint8), "10 x 400 px.*11 px"),
    ],
)
def test_refuses_what_it_cannot_compare(reference: np.ndarray, image: np.ndarray, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        ms_ssim(reference, image)
