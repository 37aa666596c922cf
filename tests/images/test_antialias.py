"""The antialiasing filter agrees with Pillow's and torchvision's, two independent implementations."""

import numpy as np
import pytest
import skimage.data
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.images.decoded import DecodedImage
from pcr_exp.images.resample import resample, resize
from pcr_exp.loading.transform import EvalTransform, TrainTransform, random_crop

PHOTOS = [skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()]
FACTORS = [1.0, 1.1, 1.25, 1.5, 1.75, 1.9, 2.0, 2.25, 2.5, 3.0, 4.0, 4.5, 6.0, 8.0]


def resized(image: np.ndarray, rows: int, columns: int, *, antialias: bool = True) -> np.ndarray:
    out = np.empty((rows, columns, 3), dtype=np.uint8)
    resize(image, out, antialias=antialias)
    return out


def pillows(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((columns, rows), Image.Resampling.BILINEAR))


def torchvisions(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    tensor = v2.functional.resize(v2.functional.to_image(image), [rows, columns], antialias=True)
    return np.asarray(tensor.permute(1, 2, 0))


def noise(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)


@pytest.mark.parametrize("oracle", [pillows, torchvisions])
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), rows=st.integers(20, 300), columns=st.integers(20, 300))
def test_crops_are_those_of_others(oracle, seed: int, rows: int, columns: int) -> None:
    """Pixels differ by at most 1 of 255 if an axis shrinks, and by 2 if both are enlarged (by OpenCV)."""
    rng = np.random.default_rng(seed)
    photo = PHOTOS[seed % len(PHOTOS)]
    top, left, height, width = random_crop(
        *photo.shape[:2], AugmentConfig(), rng.random(TrainTransform.num_draws).tolist()
    )
    crop = photo[top : top + height, left : left + width]
    difference = np.abs(resized(crop, rows, columns).astype(int) - oracle(crop, rows, columns))
    assert difference.max() <= (1 if height > rows or width > columns else 2)
    assert difference.mean() <= 0.3


@pytest.mark.parametrize("factor", FACTORS)
def test_white_noise_keeps_the_contrast_that_pillow_leaves_it(factor: float) -> None:
    image = noise(round(96 * factor), round(96 * factor))
    assert resized(image, 96, 96).std() == pytest.approx(pillows(image, 96, 96).std(), rel=0.01)
    shares = {1.5: 0.43, 1.9: 0.35}  # known values of the other implementations
    if factor in shares:
        assert resized(image, 96, 96).std() / image.std() == pytest.approx(shares[factor], abs=0.015)
        assert resized(image, 96, 96, antialias=False).std() / image.std() > 0.6


def test_each_axis_is_filtered_by_its_own_factor() -> None:
    image = noise(300, 80)
    out, wanted = resized(image, 100, 120), pillows(image, 100, 120)
    assert np.abs(out.astype(int) - wanted).max() <= 1


@settings(deadline=None)
@given(
    height=st.integers(1, 90), width=st.integers(1, 90), rows=st.integers(0, 60), columns=st.integers(0, 60)
)
def test_enlarging_is_the_same_with_and_without(height: int, width: int, rows: int, columns: int) -> None:
    image = noise(height, width)
    size = height + rows, width + columns
    assert np.array_equal(resized(image, *size), resized(image, *size, antialias=False))


@pytest.mark.parametrize("denominator", [2, 8])
def test_what_is_left_after_decoding_at_a_fraction_is_filtered(denominator: int) -> None:
    """Only decoded pixels count: 150 are filtered down to 100, but enlarging 90 to 100 filters nothing."""
    pixels = noise(200, 200)
    image = DecodedImage(pixels, (200 * denominator, 200 * denominator), denominator)
    out, plain = np.empty((100, 100, 3), dtype=np.uint8), np.empty((100, 100, 3), dtype=np.uint8)
    resample(image.part(8 * denominator, 16 * denominator, *[150 * denominator] * 2), out, antialias=True)
    assert np.abs(out.astype(int) - pillows(pixels[8:158, 16:166], 100, 100)).max() <= 1
    resample(image.part(0, 0, *[90 * denominator] * 2), out, antialias=True)
    resample(image.part(0, 0, *[90 * denominator] * 2), plain, antialias=False)
    assert np.array_equal(out, plain)


def test_a_crop_s_surroundings_do_not_show_in_it() -> None:
    """Decoding only the crop therefore gives the same result."""
    dark = np.zeros((300, 300, 3), dtype=np.uint8)
    bright = np.full((300, 300, 3), 255, dtype=np.uint8)
    bright[50:200, 60:260] = dark[50:200, 60:260]
    out = np.empty((40, 40, 3), dtype=np.uint8)
    resample(DecodedImage(bright).part(50, 60, 150, 200), out, antialias=True)
    assert not out.any()


def test_pixels_that_may_not_be_written_are_taken() -> None:
    image = np.asarray(Image.fromarray(PHOTOS[0]))
    assert not image.flags.writeable
    assert np.array_equal(resized(image, 100, 100), resized(PHOTOS[0], 100, 100))


def test_both_transforms_filter_unless_they_are_told_not_to() -> None:
    image, drawn = noise(300, 300), np.random.default_rng(0).random(TrainTransform.num_draws).tolist()
    whole = AugmentConfig(crop_scale=[1.0, 1.0], crop_ratio=[1.0, 1.0], eval_crop_fraction=1.0)
    for transform in (TrainTransform, EvalTransform):
        filtered, plain = (np.empty((200, 200, 3), dtype=np.uint8) for _ in range(2))
        transform(200, whole, antialias=True)(DecodedImage(image), drawn, filtered)
        transform(200, whole, antialias=False)(DecodedImage(image), drawn, plain)
        assert filtered.std() < 0.45 * image.std()
        assert plain.std() > 0.6 * image.std()
