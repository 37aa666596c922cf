"""JPEG bytes to pixels: one decoder for all scan groups, in three modes.

`libjpeg` gives what programs built on libjpeg show of the first scans: smoothed over. `unsmoothed` leaves the
smoothing out, and `scaled` besides decodes no more pixels than the scans carry.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
import simplejpeg
from PIL import Image

from pcr_exp.config.records import NUM_GROUPS
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.loading.libturbojpeg import find_part_decoder
from pcr_exp.loading.parts import PartlyDecodedImage
from pcr_exp.loading.smoothing import read_progressive, without_smoothing
from pcr_exp.loading.source import DecodedImage, Pixels, Source
from pcr_exp.records.jpeg import read_frame

Decoder = Callable[[bytes, int, str], Source]
"""Of (JPEG, the scan group that it is read at, what to call it in an error). Raises as `decode` does."""

_COLOURS_OF_LIBJPEG = ("YCbCr", "RGB", "Gray")
_DENOMINATORS = {1: 8, 2: 2}
"""By scan group: scan 1 holds the mean of 8 x 8 pixels, scan 2 adds what 4 x 4 in their place can show."""
_SMALLEST_SCALED_PX = 16
"""Of smaller images libjpeg-turbo has several scales with the same number of pixels."""


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
        num_components = read_frame(jpeg).num_components
    except ImageError:  # the decoders will say it better, by the image's name
        num_components = 0
    return _decode(jpeg, name, num_components)


def _decode(jpeg: bytes, name: str, num_components: int, min_height: int = 0, min_width: int = 0) -> Pixels:
    """As `decode`, at libjpeg's smallest scale that gives at least `min_height` x `min_width` pixels."""
    try:
        if num_components != 4:
            try:
                return simplejpeg.decode_jpeg(
                    jpeg,
                    "RGB",
                    fastdct=False,
                    fastupsample=False,
                    min_height=min_height,
                    min_width=min_width,
                    strict=True,
                )
            except ValueError:
                # Asked only now: almost every image is one of these, and need not be parsed twice.
                if _colours(jpeg) in _COLOURS_OF_LIBJPEG:
                    raise
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


def _baseline(jpeg: bytes, group: int, name: str) -> Source:  # noqa: ARG001
    try:
        is_progressive = read_progressive(jpeg) is not None
    except ImageError:  # damaged: the decoder will say it better, by the image's name
        is_progressive = False
    # A progressive original might lack scans, and would be smoothed.
    return _whole(jpeg, name) if is_progressive else _in_parts(jpeg, name)


def _libjpeg(jpeg: bytes, group: int, name: str) -> Source:
    return _in_parts(jpeg, name) if group == NUM_GROUPS else _whole(jpeg, name)


def _unsmoothed(jpeg: bytes, group: int, name: str) -> Source:
    return _without_smoothing(jpeg, group, name, {})


def _scaled(jpeg: bytes, group: int, name: str) -> Source:
    return _without_smoothing(jpeg, group, name, _DENOMINATORS)


def _without_smoothing(jpeg: bytes, group: int, name: str, denominators: Mapping[int, int]) -> Source:
    try:
        header = read_progressive(jpeg)
        unsmoothed = without_smoothing(jpeg, header, group) if header else None
    except (ImageError, IndexError):  # damaged
        header = unsmoothed = None
    if header is None or len(header.tables) == 4:
        return _whole(jpeg, name)
    size = header.height_px, header.width_px
    denominator = denominators.get(group, 1) if min(size) >= _SMALLEST_SCALED_PX else 1
    if denominator == 1 and unsmoothed is None:
        return _whole(jpeg, name)
    return _in_parts(unsmoothed or jpeg, name, size, denominator)


def _whole(jpeg: bytes, name: str) -> Source:
    return DecodedImage(decode(jpeg, name))


def _in_parts(jpeg: bytes, name: str, size: tuple[int, int] | None = None, denominator: int = 1) -> Source:
    """Of what is not smoothed: the pixels of smoothing differ between versions of libjpeg-turbo."""

    def whole() -> Pixels:
        if size is None or denominator == 1:
            return decode(jpeg, name)
        return _decode(jpeg, name, 3, -(-size[0] // denominator), -(-size[1] // denominator))

    decoder = find_part_decoder()
    if decoder is not None:
        try:
            return PartlyDecodedImage(jpeg, decoder, whole, denominator)
        except ImageError:
            pass
    return DecodedImage(whole(), size, denominator)


_MODES: dict[str, Decoder] = {"libjpeg": _libjpeg, "unsmoothed": _unsmoothed, "scaled": _scaled}
"""By the name that `loader.decode` gives."""


def open_decoder(mode: str, encoding: str) -> Decoder:
    """The decoder that `loader.decode=<mode>` asks for, of records in `encoding` (`pcr` or `baseline`).

    The files of baseline records have all their scans, whatever group they are read at: nothing is smoothed
    in them, and nothing may be left out.
    """
    return _MODES[mode] if encoding == "pcr" else _baseline
