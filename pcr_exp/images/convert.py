"""PNG and WebP images as JPEG files, from which records are made: what that loses is measured and said."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, UnidentifiedImageError

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.errors import ImageError

QUALITY = 95
CONVERTIBLE = ("PNG", "WEBP")


@dataclass(frozen=True, slots=True)
class Converted:
    """An image as a JPEG file, and what that lost."""

    jpeg: bytes
    psnr_db: float
    """Of 8-bit pixels before and after, over all channels; infinite where none differs."""
    left_out: tuple[str, ...]
    """What a JPEG has no room for: `alpha` (laid on white), `16 bits` (the upper 8 are kept)."""


def convert(data: bytes, quality: int = QUALITY, max_pixels: int = MAX_PIXELS) -> Converted:
    """A PNG or WebP file as a JPEG of 8 bits, grey or RGB, without chroma subsampling.

    Raises:
        ImageError: it is neither, damaged, animated, or has more pixels than `max_pixels`.
    """
    try:
        with Image.open(io.BytesIO(data), formats=CONVERTIBLE) as image:
            if image.width * image.height > max_pixels:
                raise ImageError(f"{image.width} x {image.height} pixels are more than {max_pixels}")
            if getattr(image, "n_frames", 1) > 1:
                raise ImageError("animated: a record holds one picture of each image")
            pixels, left_out = _as_jpeg_has_it(image)
            exif = image.getexif().tobytes() if image.getexif() else b""
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise ImageError(f"no PNG or WebP image that can be read: {error}") from error
    file = io.BytesIO()
    pixels.save(file, "JPEG", quality=quality, subsampling=0, optimize=True, exif=exif)
    with Image.open(file) as after:
        return Converted(file.getvalue(), _psnr_db(pixels, after), left_out)


def _as_jpeg_has_it(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """8-bit grey or RGB, and what that leaves out."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.uint32)
        return Image.fromarray((values >> 8).astype(np.uint8)), ("16 bits",)
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        if seen.getchannel("A").getextrema() != (255, 255):
            on_white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            return Image.alpha_composite(on_white, seen).convert("RGB"), ("alpha",)
    return image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), ()


def _psnr_db(before: Image.Image, after: Image.Image) -> float:
    """10 log10(255^2 / mean squared difference)."""
    difference = np.asarray(ImageChops.difference(before, after), dtype=np.float64)
    mean_square = float(np.mean(difference**2))
    return math.inf if mean_square == 0 else 10 * math.log10(255**2 / mean_square)
