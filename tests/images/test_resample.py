"""Parts of images decoded at a fraction of their size show the same region as at full size."""

import cv2
import numpy as np
import pytest
import skimage.data
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.images.codec import Part
from pcr_exp.images.decoded import DecodedImage
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.resample import resample, resize
from pcr_exp.loading.transform import EvalTransform, TrainTransform

PHOTO_PIXELS = skimage.data.astronaut()[64:320, 64:320].copy()


def ramp(height: int, width: int, denominator: int) -> np.ndarray:
    """Block means (float) of an image that encodes position: red rises to the right, green downwards."""
    rows, columns = -(-height // denominator), -(-width // denominator)
    y = (np.arange(rows) + 0.5) * denominator
    x = (np.arange(columns) + 0.5) * denominator
    picture = np.zeros((rows, columns, 3))
    picture[..., 0] = x
    picture[..., 1] = y[:, None]
    return picture


@given(
    denominator=st.sampled_from([1, 2, 8]),
    top=st.floats(20, 60).map(int),
    left=st.floats(20, 60).map(int),
    rows=st.integers(16, 160),
    columns=st.integers(16, 160),
    size=st.integers(32, 224),
    antialias=st.booleans(),
)
def test_every_scale_shows_the_same_place(
    denominator: int, top: int, left: int, rows: int, columns: int, size: int, antialias: bool
) -> None:
    """Positions, read off a ramp of slope one, are right to half a pixel of the output or the input.

    Enlarging an image that was decoded at a fraction of its size adds at most another half, because it is
    enlarged to a whole number of pixels.
    """
    pixels = np.rint(ramp(250, 250, denominator)).astype(np.uint8)
    out = np.empty((size, size, 3), dtype=np.uint8)
    part = DecodedImage(pixels, (250, 250), denominator).part(top, left, rows, columns)
    resample(part, out, antialias=antialias)
    shrinks = denominator * size <= max(rows, columns)
    coarsest = denominator if shrinks else 0
    stretched = 0.5 if denominator > 1 and not shrinks else 0.0
    for channel, first, count in ((0, left, columns), (1, top, rows)):
        step = count / size
        wanted = first + (np.arange(size) + 0.5) * step
        found = out[..., channel].mean(axis=channel).astype(float)
        # 1.2: both images are rounded to whole numbers. The outermost pixels repeat the crop's edge.
        assert np.abs(found - wanted)[4:-4].max() <= 0.5 * max(step, coarsest) + stretched * step + 1.2


@pytest.mark.parametrize("denominator", [2, 8])
def test_all_modes_draw_the_same_crop(denominator: int) -> None:
    """The same random numbers select the same region at full size and at a fraction of it."""
    full, scaled = (np.rint(ramp(247, 250, d)).astype(np.uint8) for d in (1, denominator))
    transform = TrainTransform(96, AugmentConfig())
    outs = [np.empty((96, 96, 3), dtype=np.uint8) for _ in range(2)]
    for drawn in np.random.default_rng(0).random((50, transform.num_draws)).tolist():
        transform(DecodedImage(full), drawn, outs[0])
        transform(DecodedImage(scaled, (247, 250), denominator), drawn, outs[1])
        difference = np.abs(outs[0].astype(int) - outs[1])
        assert np.quantile(difference[4:-4, 4:-4], 0.95) <= 3
        assert difference.max() < denominator + 3


@pytest.mark.parametrize("denominator", [2, 8])
def test_evaluation_sees_the_same_centre(denominator: int) -> None:
    full, scaled = (np.rint(ramp(190, 250, d)).astype(np.uint8) for d in (1, denominator))
    transform = EvalTransform(112, AugmentConfig())
    outs = [np.empty((112, 112, 3), dtype=np.uint8) for _ in range(2)]
    transform(DecodedImage(full), [], outs[0])
    transform(DecodedImage(scaled, (190, 250), denominator), [], outs[1])
    assert np.abs(outs[0].astype(int) - outs[1])[4:-4, 4:-4].max() <= 3


@given(
    height=st.integers(16, 70),
    width=st.integers(16, 70),
    denominator=st.sampled_from([2, 8]),
    size=st.integers(1, 64),
    antialias=st.booleans(),
    data=st.data(),
)
def test_any_part_of_any_image_fills_its_place(
    height: int, width: int, denominator: int, size: int, antialias: bool, data: st.DataObject
) -> None:
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    pixels = np.full((-(-height // denominator), -(-width // denominator), 3), 93, dtype=np.uint8)
    batch = np.full((3, size, size, 3), 7, dtype=np.uint8)
    part = DecodedImage(pixels, (height, width), denominator).part(top, left, rows, columns)
    resample(part, batch[1], antialias=antialias)
    assert (batch[1] == 93).all()
    assert (batch[::2] == 7).all()


def test_enlarging_is_sharper_than_bilinear() -> None:
    rng = np.random.default_rng(0)
    full = cv2.GaussianBlur(rng.integers(0, 256, (256, 256, 3), dtype=np.uint8), (0, 0), 6)
    full = cv2.normalize(full, None, 0, 255, cv2.NORM_MINMAX)
    means = np.rint(full.reshape(32, 8, 32, 8, 3).mean((1, 3))).astype(np.uint8)
    out = np.empty_like(full)
    resample(Part(means, 0, 0, 32, 32, 8), out, antialias=True)
    bilinear = cv2.resize(means, (256, 256), interpolation=cv2.INTER_LINEAR)
    assert np.abs(full.astype(int) - out).mean() < 0.8 * np.abs(full.astype(int) - bilinear).mean()


def test_enlarging_block_means_of_a_photograph_gives_back_more_than_cubic_does() -> None:
    """Block means have less contrast than the image, so images decoded at 1/8 are sharpened."""
    photo = PHOTO_PIXELS
    means = photo.reshape(32, 8, 32, 8, 3).mean((1, 3)).round().astype(np.uint8)
    out = np.empty_like(photo)
    resample(Part(means, 0, 0, 32, 32, 8), out, antialias=True)
    cubic = cv2.resize(means, (256, 256), interpolation=cv2.INTER_CUBIC)
    assert ms_ssim(photo, out).value > ms_ssim(photo, cubic).value + 0.005


@pytest.mark.parametrize("size", [64, 120, 224])
def test_without_the_filter_shrinking_to_less_than_half_is_nearer_to_an_average_than_bilinear_is(
    size: int,
) -> None:
    photo = np.array(Image.fromarray(PHOTO_PIXELS).resize((517, 603), Image.Resampling.BICUBIC))
    out = np.empty((size, size, 3), dtype=np.uint8)
    resize(photo, out, antialias=False)
    wanted = np.asarray(Image.fromarray(photo).resize((size, size), Image.Resampling.BILINEAR)).astype(int)
    bilinear = cv2.resize(photo, (size, size), interpolation=cv2.INTER_LINEAR)
    assert np.abs(out - wanted).mean() < 0.75 * np.abs(bilinear - wanted).mean()
