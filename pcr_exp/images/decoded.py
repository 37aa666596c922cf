"""A JPEG as crops see it: in pixels of its full size, at whatever scale it was decoded, whole or in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer, Part, Pixels, Source
from pcr_exp.images.libturbojpeg import Frame


class PartDecoder(Protocol):
    """What decodes rectangles; both calls raise ImageError for files that it is not for."""

    is_exact: bool
    """Whether a rectangle, wherever it begins, has the pixels of the whole, at its edges as well."""

    def read_frame(self, jpeg: Buffer) -> Frame:
        """What the header says."""

    def decode(self, jpeg: Buffer, denominator: int, top: int, left: int, rows: int, columns: int) -> Pixels:
        """uint8 [rows, columns, 3] RGB, in pixels at 1/denominator of the size."""


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


_MARGIN_PX = 4
"""Two on which pixels of the part depend (chroma is interpolated), two that cubic resampling looks at."""


class PartlyDecodedImage:
    """An image of which no more is decoded than a part needs; the pixels are those of the whole."""

    def __init__(
        self,
        jpeg: Buffer,
        decoder: PartDecoder,
        otherwise: Callable[[], Source],
        denominator: int = 1,
        frame: Frame | None = None,
    ) -> None:
        """`otherwise()` decodes it, where this decoder cannot, or raises what is wrong with it.

        `frame` is what `decoder.read_frame` gives, if it was asked already.

        Raises:
            ImageError: `decoder` does not decode parts of it.
        """
        frame = frame or decoder.read_frame(jpeg)
        self.height_px, self.width_px = frame.height_px, frame.width_px
        self._step_px = 1 if decoder.is_exact else max(1, frame.mcu_width_px // denominator)
        # At full size a part's pixels are whole ones, and resampling looks at no others.
        self._margin_px = 0 if decoder.is_exact and denominator == 1 else _MARGIN_PX
        self._jpeg, self._decoder, self._otherwise, self._denominator = jpeg, decoder, otherwise, denominator

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """The rectangle, in as many pixels as decode it, and resampling, as if all were there."""
        d, margin = self._denominator, self._margin_px
        y, bottom = _within(top, rows, d, margin, self.height_px)
        x, right = _within(left, columns, d, margin, self.width_px)
        x -= x % self._step_px
        try:
            pixels = self._decoder.decode(self._jpeg, d, y, x, bottom - y, right - x)
        except ImageError:
            return self._otherwise().part(top, left, rows, columns)
        return Part(pixels, top / d - y, left / d - x, rows / d, columns / d, d)


def decoded_by(
    decoder: PartDecoder | None, jpeg: Buffer, otherwise: Callable[[], Source], denominator: int
) -> Source:
    """The image by this decoder, if there is one and the file is for it; else `otherwise()`."""
    if decoder is not None:
        try:
            return PartlyDecodedImage(jpeg, decoder, otherwise, denominator)
        except ImageError:
            pass
    return otherwise()


def _within(first: int, count: int, denominator: int, margin: int, size: int) -> tuple[int, int]:
    """Where pixels at 1/denominator begin and end that hold the stretch, and so many neighbours."""
    last = -(-size // denominator)
    return (
        max(0, first // denominator - margin),
        min(last, -(-(first + count) // denominator) + margin),
    )
