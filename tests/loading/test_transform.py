"""Crops, flips and resizing agree with torchvision, Pillow and arithmetic."""

import numpy as np
import pytest
import skimage.data
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.images.decoded import DecodedImage
from pcr_exp.images.resample import resize
from pcr_exp.loading.transform import EvalTransform, TrainTransform, random_crop

PHOTO = skimage.data.astronaut()


def draws(seed: int = 0, count: int = 1) -> list[list[float]]:
    return np.random.default_rng(seed).random((count, TrainTransform.num_draws)).tolist()


def empty(rows: int, columns: int | None = None) -> np.ndarray:
    return np.empty((rows, columns or rows, 3), dtype=np.uint8)


@given(height=st.integers(1, 3000), width=st.integers(1, 3000), seed=st.integers(0, 2**32))
def test_a_random_crop_lies_in_the_image_with_an_allowed_shape(height: int, width: int, seed: int) -> None:
    config = AugmentConfig(crop_scale=[0.3, 0.9], crop_ratio=[0.8, 1.25])
    top, left, rows, columns = random_crop(height, width, config, draws(seed)[0])
    assert 0 <= top < top + rows <= height
    assert 0 <= left < left + columns <= width
    # Rounding moves each side by up to half a pixel.
    assert columns + 0.5 >= 0.8 * (rows - 0.5)
    assert columns - 0.5 <= 1.25 * (rows + 0.5)


def test_crops_have_torchvisions_distribution() -> None:
    """Area, aspect ratio and position have the same mean and spread over 4,000 crops each."""
    config = AugmentConfig()
    ours = np.array([random_crop(375, 500, config, drawn) for drawn in draws(0, 4000)], dtype=float)
    image = v2.functional.to_image(Image.new("L", (500, 375)))
    reference = v2.RandomResizedCrop(224, scale=(0.08, 1), ratio=(3 / 4, 4 / 3))
    drawn = [reference.make_params([image]) for _ in range(4000)]
    theirs = np.array([[d["top"], d["left"], d["height"], d["width"]] for d in drawn], dtype=float)
    for measure in (
        lambda crops: crops[:, 2] * crops[:, 3] / (375 * 500),
        lambda crops: np.log(crops[:, 3] / crops[:, 2]),
        lambda crops: crops[:, 0],
        lambda crops: crops[:, 1],
    ):
        a, b = measure(ours), measure(theirs)
        assert a.mean() == pytest.approx(b.mean(), abs=5 * b.std() / np.sqrt(2000))
        assert a.std() == pytest.approx(b.std(), rel=0.08)


@pytest.mark.parametrize(
    ("height", "width", "crop"),
    [(100, 1000, (0, 433, 100, 133)), (1000, 100, (433, 0, 133, 100)), (100, 100, (0, 0, 100, 100))],
)
def test_impossible_crops_fall_back_to_the_centre(
    height: int, width: int, crop: tuple[int, int, int, int]
) -> None:
    config = AugmentConfig(crop_scale=[1.0, 1.0])
    fallen_back = [random_crop(height, width, config, drawn) for drawn in draws(0, 20)]
    # A square image has a crop of its whole area only if the drawn ratio is almost 1. It equals the fallback.
    assert fallen_back.count(crop) == 20


def test_the_whole_image_at_its_own_size_is_copied() -> None:
    square = PHOTO[:64, :64]
    config = AugmentConfig(crop_scale=[1.0, 1.0], crop_ratio=[1.0, 1.0], horizontal_flip=False)
    out = empty(64)
    TrainTransform(64, config)(DecodedImage(square), draws()[0], out)
    assert np.array_equal(out, square)


def test_half_of_the_images_are_flipped() -> None:
    square = np.ascontiguousarray(PHOTO[:32, :32])
    transform = TrainTransform(32, AugmentConfig(crop_scale=[1.0, 1.0], crop_ratio=[1.0, 1.0]))
    flips = 0
    for drawn in draws(0, 400):
        out = empty(32)
        transform(DecodedImage(square), drawn, out)
        flipped = np.array_equal(out, square[:, ::-1])
        assert flipped or np.array_equal(out, square)
        flips += flipped
    assert 160 < flips < 240


def test_only_its_own_place_in_the_batch_is_written() -> None:
    batch = np.full((3, 48, 48, 3), 77, dtype=np.uint8)
    TrainTransform(48, AugmentConfig())(DecodedImage(PHOTO), draws()[0], batch[1])
    assert (batch[0] == 77).all()
    assert (batch[2] == 77).all()
    assert batch[1].std() > 10


def test_equal_streams_give_equal_images() -> None:
    outs = [empty(48) for _ in range(3)]
    for seed, out in zip((1, 1, 2), outs, strict=True):
        TrainTransform(48, AugmentConfig())(DecodedImage(PHOTO), draws(seed)[0], out)
    assert np.array_equal(outs[0], outs[1])
    assert not np.array_equal(outs[0], outs[2])


@pytest.mark.parametrize("shape", [(300, 300), (200, 380), (512, 130), (700, 512)])
def test_resizing_without_the_filter_is_close_to_pillows(shape: tuple[int, int]) -> None:
    """Pillow filters over all source pixels. Unfiltered bilinear may differ at edges, but not on average."""
    image = np.asarray(Image.fromarray(PHOTO).resize(shape))
    out = empty(120)
    resize(image, out, antialias=False)
    reference = np.asarray(Image.fromarray(image).resize((120, 120), Image.Resampling.BILINEAR))
    assert np.abs(out.astype(int) - reference).mean() < 6
    assert np.abs(out.mean((0, 1)) - reference.mean((0, 1))).max() < 1


@pytest.mark.parametrize("antialias", [False, True])
def test_strong_shrinking_averages_areas(antialias: bool) -> None:
    stripes = np.zeros((400, 400, 3), dtype=np.uint8)
    stripes[:, ::4] = stripes[:, 1::4] = 255
    out = empty(100)
    resize(stripes, out, antialias=antialias)
    inner = out[1:-1, 1:-1]  # at an edge the filter covers only half its pixels
    assert np.abs(inner.astype(int) - 127).max() <= 1, "picking pixels would give black or white"


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("shape", [(300, 400), (400, 300), (256, 256), (90, 700), (50, 60)])
def test_evaluation_is_torchvisions_resize_and_centre_crop(shape: tuple[int, int], antialias: bool) -> None:
    image = np.array(Image.fromarray(PHOTO).resize(shape[::-1]))
    out = empty(112)
    EvalTransform(112, AugmentConfig(), antialias=antialias)(DecodedImage(image), [], out)
    resized = v2.Resize(128, antialias=antialias)(v2.functional.to_image(image))
    reference = v2.CenterCrop(112)(resized).permute(1, 2, 0).numpy()
    # The pixels are the same except for rounding of weights; a shift by one pixel would differ much more.
    if antialias or max(shape) <= 256:
        assert np.abs(out.astype(int) - reference).mean() < 1.0
    assert np.abs(out.mean((0, 1)) - reference.mean((0, 1))).max() < 2


def test_evaluation_without_margin_leaves_an_image_of_the_right_size_alone() -> None:
    out = empty(128)
    image = PHOTO[:128, 100:228]
    EvalTransform(128, AugmentConfig(eval_crop_fraction=1.0))(DecodedImage(image), [], out)
    assert np.array_equal(out, image)
