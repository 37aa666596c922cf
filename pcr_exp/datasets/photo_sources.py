"""The photographs that the embedded dataset is cut from, and which part of each belongs to which split.

They are files inside scikit-image's wheel, so nothing is downloaded. Of those that it ships, these are
large enough, sharp to the pixel nearly everywhere, and alike on their left and right. Left out: moon,
retina and cell (blurring changes little), chelsea (half out of focus), coins and page (small), camera (a man
on the left, a lawn on the right), gravel (much like grass) and the motorcycle's second picture (same scene).
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import IO

import numpy as np
from PIL import Image

from pcr_exp.errors import DatasetError

SOURCE_FILES = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "coffee": "coffee.png",
    "grass": "grass.png",
    "hubble": "hubble_deep_field.jpg",
    "ihc": "ihc.png",
    "motorcycle": "motorcycle_left.png",
    "rocket": "rocket.jpg",
}
"""Class name -> file in skimage/data."""

TRAIN_SHARE = 0.6
"""Share of a photograph's width, from the left, that train is cut from; val gets the rest."""
GAP_PX = 16
"""Columns between the two that belong to neither, since neighbouring pixels are alike."""


def load_photo(name: str) -> np.ndarray:
    """The photograph: uint8 [H, W, 3] RGB, or [H, W] if it is grey.

    Raises:
        DatasetError: this scikit-image does not ship it.
    """
    return np.asarray(Image.open(_open(name)))


def sources_digest() -> str:
    """SHA-256 over all source files: another scikit-image may ship other bytes."""
    digest = hashlib.sha256()
    for name in SOURCE_FILES:
        digest.update(_open(name).read())
    return digest.hexdigest()


def split_region(photo: np.ndarray, split: str) -> np.ndarray:
    """The columns of `photo` that `split` (train or val) may use; those of the other split are not in it."""
    boundary = round(TRAIN_SHARE * photo.shape[1])
    return photo[:, : boundary - GAP_PX // 2] if split == "train" else photo[:, boundary + GAP_PX // 2 :]


def _open(name: str) -> IO[bytes]:
    file = files("skimage.data") / SOURCE_FILES[name]
    if not file.is_file():
        raise DatasetError(
            f"photos: scikit-image ships no {SOURCE_FILES[name]} here ({file}). The dataset is made from the "
            "photographs in its wheel: install scikit-image 0.24 or later as a wheel."
        )
    return file.open("rb")
