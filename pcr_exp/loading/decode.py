"""JPEG bytes to pixels, with one decoder for every scan group, so that groups differ in nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from pcr_exp.errors import RecordError

Pixels = npt.NDArray[np.uint8]
Decoder = Callable[[bytes, str], Pixels]

_COLOURS_OF_LIBJPEG = ("YCbCr", "RGB", "Gray")


def decode(jpeg: bytes, name: str = "an image") -> Pixels:
    """Decode a JPEG, complete or a prefix of its scans, to uint8 [H, W, 3] RGB.

    libjpeg-turbo with accurate DCT and smooth chroma upsampling: scan group 10 gives the pixels of the
    original baseline file, bit for bit, and Pillow's. `strict` refuses a scan that is cut short; a file that
    has only its first scans is whole, as far as libjpeg is concerned. Four-component images (CMYK, YCCK) go
    through Pillow, which knows Adobe's inverted inks, as do files whose subsampling libjpeg-turbo's own
    interface does not know.

    Raises:
        RecordError: it cannot be decoded; the message starts with `name`.
    """
    try:
        if _colours(jpeg) in _COLOURS_OF_LIBJPEG:
            return simplejpeg.decode_jpeg(jpeg, "RGB", fastdct=False, fastupsample=False, strict=True)
        with Image.open(io.BytesIO(jpeg)) as image:
            return np.asarray(image.convert("RGB"))
    except (ValueError, OSError, SyntaxError) as error:
        raise RecordError(
            f"{name} cannot be decoded: {error}. Its record's checksum is right, so it was stored like this: "
            "remove the image from the dataset and encode again."
        ) from error


def _colours(jpeg: bytes) -> str:
    try:
        _, _, colours, _ = simplejpeg.decode_jpeg_header(jpeg)
    except ValueError:
        return "unknown"
    return str(colours)


DECODERS: dict[str, Decoder] = {"libjpeg": decode}
"""By the name that `loader.decode` gives."""
