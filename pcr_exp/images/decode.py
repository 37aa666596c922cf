"""JPEG behind the codec seam: two codecs, and decoding at any scan group in three modes.

`ProgressiveJpeg` cuts files into libjpeg's progressive scans, `WholeJpeg` keeps them as they are. Of modes,
`libjpeg` gives what programs built on libjpeg show of the first scans: smoothed over. `unsmoothed` leaves the
smoothing out, and `scaled` besides decodes no more pixels than the scans carry.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import simplejpeg
from PIL.JpegImagePlugin import JpegImageFile

from pcr_exp.config.components import register
from pcr_exp.config.records import MAX_PIXELS, NUM_GROUPS, SCANS
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import Buffer, Decoder, Pixels, Source
from pcr_exp.images.decoded import DecodedImage, PartlyDecodedImage
from pcr_exp.images.jpeg import (
    EOI,
    PROGRESSIVE_CODE,
    UPRIGHT,
    Frame,
    check_frame,
    group_pieces,
    read_orientation,
    split_scans,
)
from pcr_exp.images.libturbojpeg import find_part_decoder
from pcr_exp.images.smoothing import read_progressive, without_smoothing
from pcr_exp.images.transcode import find_transcoder, refuse_unsupported, to_progressive

_COLOURS_OF_LIBJPEG = ("YCbCr", "RGB", "Gray")
_DENOMINATORS = {1: 8, 2: 2}
"""By scan group: scan 1 holds the mean of 8 x 8 pixels, scan 2 adds what 4 x 4 in their place can show."""
_SMALLEST_SCALED_PX = 16
"""Below this, several of libjpeg-turbo's scales give the same number of pixels."""


def decode(jpeg: Buffer, name: str = "an image", max_pixels: int = MAX_PIXELS) -> Pixels:
    """Decode a JPEG, complete or a prefix of its scans, to uint8 [H, W, 3] RGB.

    libjpeg-turbo with accurate DCT and smooth chroma upsampling: scan group 10 gives the pixels of the
    original baseline file, bit for bit, and Pillow's. `strict` refuses a scan that is cut short; a file that
    has only its first scans is whole, as far as libjpeg is concerned. Four-component images (CMYK, YCCK) go
    through Pillow, which knows Adobe's inverted inks, as do files whose subsampling libjpeg-turbo's own
    interface does not know.

    Raises:
        RecordError: it cannot be decoded, or has more pixels than `max_pixels` (`records.max_pixels`); the
            message starts with `name`.
    """
    return _decode(jpeg, name, _check(jpeg, name, max_pixels))


def _check(jpeg: Buffer, name: str, max_pixels: int) -> Frame:
    """The frame header, before any decoder is given the file: they believe what it says."""
    try:
        return check_frame(jpeg, max_pixels)
    except ImageError as error:
        raise RecordError(
            f"{name} cannot be decoded: {error}. Its record's checksum is right, so it was stored like this: "
            "remove the image from the dataset and encode again, or raise records.max_pixels if it is large."
        ) from error


def _decode(jpeg: Buffer, name: str, frame: Frame, min_height: int = 0, min_width: int = 0) -> Pixels:
    """As `decode`, at libjpeg's smallest scale that gives at least `min_height` x `min_width` pixels."""
    try:
        if frame.num_components != 4:
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
            except (ValueError, KeyError):
                # Asked only now: almost every image is one of these, and need not be parsed twice.
                if _colours(jpeg) in _COLOURS_OF_LIBJPEG:
                    raise
        # Not `Image.open`, which would take other formats too, and has a pixel limit of its own.
        with JpegImageFile(io.BytesIO(jpeg)) as image:
            if image.size != (frame.width_px, frame.height_px):  # Pillow believes the last of several
                raise ValueError("its frame headers (SOF) contradict each other")
            return np.asarray(image.convert("RGB"))
    except (ValueError, KeyError, OSError, SyntaxError) as error:
        raise RecordError(
            f"{name} cannot be decoded: {error}. Its record's checksum is right, so it was stored like this: "
            "remove the image from the dataset and encode again."
        ) from error


def _colours(jpeg: Buffer) -> str:
    try:
        _, _, colours, _ = simplejpeg.decode_jpeg_header(jpeg)
    except (ValueError, KeyError):
        return "unknown"
    return str(colours)


def _baseline(jpeg: Buffer, group: int, name: str, frame: Frame) -> Source:  # noqa: ARG001
    # A progressive original might lack scans, and would be smoothed.
    return (_whole if frame.code == PROGRESSIVE_CODE else _in_parts)(jpeg, name, frame)


def _libjpeg(jpeg: Buffer, group: int, name: str, frame: Frame) -> Source:
    return (_in_parts if group == NUM_GROUPS else _whole)(jpeg, name, frame)


def _unsmoothed(jpeg: Buffer, group: int, name: str, frame: Frame) -> Source:
    return _without_smoothing(jpeg, group, name, frame, {})


def _scaled(jpeg: Buffer, group: int, name: str, frame: Frame) -> Source:
    return _without_smoothing(jpeg, group, name, frame, _DENOMINATORS)


def _without_smoothing(
    jpeg: Buffer, group: int, name: str, frame: Frame, denominators: Mapping[int, int]
) -> Source:
    try:
        header = read_progressive(jpeg)
        unsmoothed = without_smoothing(jpeg, header, group) if header else None
    except (ImageError, IndexError):  # damaged: the decoder will say it better
        header = unsmoothed = None
    if header is None or len(header.tables) == 4:
        return _whole(jpeg, name, frame)
    denominator = (
        denominators.get(group, 1) if min(header.height_px, header.width_px) >= _SMALLEST_SCALED_PX else 1
    )
    if denominator == 1 and unsmoothed is None:
        return _whole(jpeg, name, frame)
    return _in_parts(unsmoothed or jpeg, name, frame, denominator)


def _whole(jpeg: Buffer, name: str, frame: Frame) -> Source:
    return DecodedImage(_decode(jpeg, name, frame))


def _in_parts(jpeg: Buffer, name: str, frame: Frame, denominator: int = 1) -> Source:
    """For files that are not smoothed: the pixels of smoothing differ between versions of libjpeg-turbo."""
    size = frame.height_px, frame.width_px

    def whole() -> Pixels:
        if denominator == 1:
            return _decode(jpeg, name, frame)
        return _decode(jpeg, name, frame, -(-size[0] // denominator), -(-size[1] // denominator))

    decoder = find_part_decoder()
    if decoder is not None:
        try:
            return PartlyDecodedImage(jpeg, decoder, whole, denominator)
        except ImageError:
            pass
    return DecodedImage(whole(), None if denominator == 1 else size, denominator)


_MODES: dict[str, Callable[[Buffer, int, str, Frame], Source]] = {
    "libjpeg": _libjpeg,
    "unsmoothed": _unsmoothed,
    "scaled": _scaled,
}
"""By the name that `loader.decode` gives."""


def open_decoder(mode: str, encoding: str, max_pixels: int = MAX_PIXELS) -> Decoder:
    """The JPEG decoder for `loader.decode=<mode>`, of records in `encoding` (`pcr` or `baseline`).

    Images of more than `max_pixels` (`records.max_pixels`) are refused before anything is decoded.

    The files of baseline records have all their scans, whatever group they are read at: nothing is smoothed
    in them, and nothing may be left out.
    """
    return partial(_open, _MODES[mode] if encoding == "pcr" else _baseline, max_pixels)


def _open(
    mode: Callable[[Buffer, int, str, Frame], Source], max_pixels: int, jpeg: Buffer, group: int, name: str
) -> Source:
    return mode(jpeg, group, name, _check(jpeg, name, max_pixels))


class _Jpeg:
    """What both ways to store a JPEG have in common."""

    def check(self, original: bytes, max_pixels: int) -> None:
        """Refuse what is no 8-bit Huffman-coded DCT JPEG, or too large."""
        refuse_unsupported(original, max_pixels)

    def is_turned(self, original: bytes) -> bool:
        """Whether EXIF says so."""
        return read_orientation(original) != UPRIGHT


class ProgressiveJpeg(_Jpeg):
    """Scan i of the losslessly transcoded file is group i; surplus scans join the last group."""

    name = SCANS["pcr"]
    num_groups = NUM_GROUPS

    def check_installed(self) -> None:
        """Raise RecordError where neither libturbojpeg nor jpegtran is installed."""
        find_transcoder()

    def encode(self, original: bytes, max_pixels: int = MAX_PIXELS) -> bytes:
        """The same quantised coefficients in libjpeg's default progressive scans."""
        return to_progressive(original, max_pixels)

    def split(self, encoded: bytes) -> list[bytes]:
        """The scans; without the end-of-image marker, which `join` adds."""
        return group_pieces(split_scans(encoded), self.num_groups)

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        """The scans, then the end-of-image marker."""
        return (*pieces, EOI)

    def open_decoder(self, mode: str, max_pixels: int = MAX_PIXELS) -> Decoder:
        """See `open_decoder`."""
        return open_decoder(mode, "pcr", max_pixels)


class WholeJpeg(_Jpeg):
    """The file as it was, in one group."""

    name = SCANS["baseline"]
    num_groups = 1

    def check_installed(self) -> None:
        """Nothing is needed."""

    def encode(self, original: bytes, max_pixels: int = MAX_PIXELS) -> bytes:  # noqa: ARG002
        """The file."""
        return original

    def split(self, encoded: bytes) -> list[bytes]:
        """The file, as the only piece."""
        return [encoded]

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        """The only piece."""
        return pieces

    def open_decoder(self, mode: str, max_pixels: int = MAX_PIXELS) -> Decoder:
        """See `open_decoder`."""
        return open_decoder(mode, "baseline", max_pixels)


PROGRESSIVE = ProgressiveJpeg()
WHOLE = WholeJpeg()


@register("images.codec", ProgressiveJpeg.name)
def open_progressive() -> ProgressiveJpeg:
    """Records' default codec."""
    return PROGRESSIVE


@register("images.codec", WholeJpeg.name)
def open_whole() -> WholeJpeg:
    """The codec of baseline records."""
    return WHOLE
