"""Augmentation and evaluation crops, written from a decoded image straight into the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from pcr_exp.config.crops import CropSettings
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import ANTIALIAS
from pcr_exp.images.codec import Pixels, Source
from pcr_exp.images.resample import resample

_NUM_TRIES = 10


class Transform(Protocol):
    """Fills `out`, uint8 [image_size, image_size, 3], from an image."""

    image_size: int
    num_draws: int
    """Number of random numbers per image."""

    def __call__(self, image: Source, draws: Sequence[float], out: Pixels) -> None:
        """Fill `out`. All randomness comes from `draws`, `num_draws` numbers in [0, 1)."""


class Crop(NamedTuple):
    """A rectangle of an image, in full-size pixels."""

    top: int
    left: int
    rows: int
    columns: int


class TrainTransform:
    """Random-resized-crop (Szegedy et al. 2015, as torchvision does it) and horizontal flip."""

    num_draws = 2 * _NUM_TRIES + 3

    def __init__(self, image_size: int, config: AugmentConfig, *, antialias: bool = ANTIALIAS) -> None:
        self.image_size = image_size
        self.config = config
        self.antialias = antialias

    def __call__(self, image: Source, draws: Sequence[float], out: Pixels) -> None:
        """Fill `out` from a random part of `image`. The part does not depend on the decoded scale."""
        crop = random_crop(image.height_px, image.width_px, self.config, draws)
        mirrored = self.config.horizontal_flip and draws[-1] < 0.5
        resample(image.part(*crop), out, antialias=self.antialias, mirrored=mirrored)


class EvalTransform:
    """Resizes the short side to image_size / eval_crop_fraction, then crops the centre."""

    num_draws = 0

    def __init__(self, image_size: int, config: AugmentConfig, *, antialias: bool = ANTIALIAS) -> None:
        self.image_size = image_size
        self.config = config
        self.antialias = antialias

    def __call__(self, image: Source, draws: Sequence[float], out: Pixels) -> None:  # noqa: ARG002
        """Fill `out` from the centre of `image`."""
        height, width = image.height_px, image.width_px
        short = max(self.image_size, round(self.image_size / self.config.eval_crop_fraction))
        scale = short / min(height, width)
        rows, columns = max(short, int(height * scale)), max(short, int(width * scale))
        resized = np.empty((rows, columns, 3), dtype=np.uint8)
        resample(image.part(0, 0, height, width), resized, antialias=self.antialias)
        top, left = round((rows - self.image_size) / 2), round((columns - self.image_size) / 2)
        out[:] = resized[top : top + self.image_size, left : left + self.image_size]


def train_transform(crops: CropSettings) -> TrainTransform:
    """Return the transform that makes the random crops of `crops`."""
    return TrainTransform(crops.train_px, crops.augment, antialias=crops.antialias)


def eval_transform(crops: CropSettings, px: int | None = None) -> EvalTransform:
    """Return the transform that makes the centre crops of `crops`, with side `px` if given."""
    return EvalTransform(px or crops.eval_px, crops.augment, antialias=crops.antialias)


def random_crop(height: int, width: int, config: AugmentConfig, draws: Sequence[float]) -> Crop:
    """Return a crop of random area and aspect ratio (columns / rows, log-uniform).

    After ten failed tries, return the largest centre crop with an allowed aspect ratio. Each try uses two
    `draws` of its own; the position of the crop uses the two after those of all tries.
    """
    low_scale, high_scale = config.crop_scale
    low_ratio, high_ratio = config.crop_ratio
    for i in range(0, 2 * _NUM_TRIES, 2):
        area = height * width * (low_scale + draws[i] * (high_scale - low_scale))
        ratio = low_ratio * (high_ratio / low_ratio) ** draws[i + 1]
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            down, right = draws[2 * _NUM_TRIES : 2 * _NUM_TRIES + 2]
            return Crop(int(down * (height - rows + 1)), int(right * (width - columns + 1)), rows, columns)
    rows, columns = height, width
    if width < low_ratio * height:
        rows = max(1, round(width / low_ratio))
    elif width > high_ratio * height:
        columns = max(1, round(height * high_ratio))
    return Crop((height - rows) // 2, (width - columns) // 2, rows, columns)
