"""Decoded JPEGs, addressed in full-size pixels at whatever scale they were decoded, as a whole or in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer, Part, Pixels, Source
from pcr_exp.images.libturbojpeg import Frame


class PartDecoder(Protocol):
    """Decoder for rectangular regions. Both methods raise ImageError for unsupported files."""

    is_exact: bool
    """Whether any rectangle has exactly the pixels of a full decode, even at its edges."""

    def read_frame(self, jpeg: Buffer) -> Frame:
        """Parse the JPEG header."""

    def decode(self, jpeg: Buffer, denominator: int, top: int, left: int, rows: int, columns: int) -> Pixels:
        """Decode a rectangle, in pixels at 1/denominator of the size, to uint8 [rows, columns, 3] RGB."""


class DecodedImage:
    """An image decoded as a whole, at 1/denominator of its size, rounded up."""

    def __init__(self, pixels: Pixels, size: tuple[int, int] | None = None, denominator: int = 1) -> None:
        """`size` is the full-size (height, width); default: that of `pixels`."""
        self.height_px, self.width_px = size or pixels.shape[:2]
        self._pixels = pixels
        self._denominator = denominator

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """Return the rectangle, with all of the image's pixels."""
        d = self._denominator
        return Part(self._pixels, top / d, left / d, rows / d, columns / d, d)


_MARGIN_PX = 4
"""Two pixels that decoding needs (chroma is interpolated), and two that cubic resampling reads."""


class PartlyDecodedImage:
    """Decodes only the region a crop needs; its pixels equal those of a full decode."""

    def __init__(
        self,
        jpeg: Buffer,
        decoder: PartDecoder,
        otherwise: Callable[[], Source],
        denominator: int = 1,
        frame: Frame | None = None,
    ) -> None:
        """`otherwise()` is the fallback for images the decoder cannot handle; it raises if they are damaged.

        `frame` is the result of `decoder.read_frame`, if known already.

        Raises:
            ImageError: `decoder` does not support the image.
        """
        frame = frame or decoder.read_frame(jpeg)
        self.height_px, self.width_px = frame.height_px, frame.width_px
        self._step_px = 1 if decoder.is_exact else max(1, frame.mcu_width_px // denominator)
        # At full size a part consists of whole pixels, and resampling reads no others.
        self._margin_px = 0 if decoder.is_exact and denominator == 1 else _MARGIN_PX
        self._jpeg, self._decoder, self._otherwise, self._denominator = jpeg, decoder, otherwise, denominator

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """Decode the rectangle and the margin for resampling; the result equals a crop of the full image."""
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
    """Return the image decoded by `decoder`, if there is one and it supports the file; else `otherwise()`."""
    if decoder is not None:
        try:
            return PartlyDecodedImage(jpeg, decoder, otherwise, denominator)
        except ImageError:
            pass
    return otherwise()


def _within(first: int, count: int, denominator: int, margin: int, size: int) -> tuple[int, int]:
    """Begin and end, in pixels at 1/denominator, of an interval plus margins, clipped to the image."""
    last = -(-size // denominator)
    return (
        max(0, first // denominator - margin),
        min(last, -(-(first + count) // denominator) + margin),
    )
