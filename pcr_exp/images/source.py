"""A decoded image as crops see it: in pixels of its full size, at whatever scale it was decoded."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


class Part(NamedTuple):
    """A rectangle of an image, and pixels that hold it.

    `top`, `left`, `rows` and `columns` are in units of `pixels`; where the image was decoded at a fraction of
    its size they need not be whole.
    """

    pixels: Pixels
    """uint8 [h, w, 3]."""
    top: float
    left: float
    rows: float
    columns: float
    denominator: int
    """Each of `pixels` stands for denominator x denominator pixels of the full size."""


class Source(Protocol):
    """An image of which parts can be had."""

    height_px: int
    width_px: int

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """The rectangle that is given in pixels of the full size and lies within it."""
        ...


class DecodedImage:
    """An image that was decoded as a whole, at 1/denominator of its size, rounded up."""

    def __init__(self, pixels: Pixels, size: tuple[int, int] | None = None, denominator: int = 1) -> None:
        """`size` is the full (height, width); that of `pixels` if not given."""
        self.height_px, self.width_px = size or pixels.shape[:2]
        self._pixels = pixels
        self._denominator = denominator

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """The rectangle, in all the pixels."""
        d = self._denominator
        return Part(self._pixels, top / d, left / d, rows / d, columns / d, d)
