"""The two JPEG codecs, and decoding at any scan group in three modes.

`ProgressiveJpeg` splits files into the scans of a script; `WholeJpeg` stores them unchanged. The mode
`libjpeg` shows the first scans as programs built on libjpeg do, with block smoothing. `unsmoothed` leaves the
smoothing out. `scaled` does too, and decodes no more pixels than the scans carry.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
import simplejpeg
from PIL.JpegImagePlugin import JpegImageFile

from pcr_exp.config.components import register
from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.config.scan_scripts import DEFAULT, FAMILY, SCANS, ScanScript, script_of
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import FAMILIES, Buffer, Decoder, Pixels, Source
from pcr_exp.images.decoded import DecodedImage, PartlyDecodedImage, decoded_by
from pcr_exp.images.decoder import Layout, find_decoder
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
from pcr_exp.images.smoothing import (
    Prefix,
    can_be_switched_off,
    prefix_of,
    read_progressive,
    without_smoothing,
)
from pcr_exp.images.transcode import find_writer, refuse_unsupported, to_progressive

_COLOURS_OF_LIBJPEG = ("YCbCr", "RGB", "Gray")
_SMALLEST_SCALED_PX = 16
"""Below this side length, several of libjpeg-turbo's scales give the same number of pixels."""
_COMPLETE = prefix_of(DEFAULT, 3, DEFAULT.num_groups)
"""All bits of all coefficients, which libjpeg does not smooth. Also used for one component."""


def decode(jpeg: Buffer, name: str = "an image", max_pixels: int = MAX_PIXELS) -> Pixels:
    """Decode a whole image, from all of its scans or the first ones, as libjpeg does (with smoothing).

    Scan group 10 gives exactly the pixels of the original baseline file, which are also Pillow's. An original
    that is progressive itself and lacks scans is an exception: libjpeg smooths it, but not its scan group 10.

    Raises:
        RecordError: it cannot be decoded, or has more pixels than `max_pixels` (`records.max_pixels`); the
            message starts with `name`.
    """
    return decode_jpeg(jpeg, smoothing=True, max_pixels=max_pixels, name=name)


def decode_jpeg(
    data: Buffer,
    rectangle: tuple[int, int, int, int] | None = None,
    scale: Fraction | float = 1,
    *,
    smoothing: bool = False,
    max_pixels: int = MAX_PIXELS,
    name: str = "the image",
) -> Pixels:
    """Decode a JPEG, or a rectangle of it, to uint8 [rows, columns, 3] RGB.

    Pixels are libjpeg-turbo's (accurate DCT, smooth chroma upsampling). `decoder.c` computes them if it was
    built and supports the file, else libjpeg-turbo, which smooths files that lack scans. The GIL is released.
    Truncated scans are refused, but a file with only its first scans is complete. Images of four components
    (CMYK, YCCK) go through Pillow, which handles Adobe's inverted inks. So do files with a subsampling that
    libjpeg-turbo's own interface does not support.

    Args:
        data: The file; for progressive ones, a prefix of the scans and an end-of-image marker suffice.
        rectangle: (top, left, rows, columns) in pixels at `scale`; the whole image if not given. Scans are
            read up to its last row, so damage beyond it may go unnoticed.
        scale: 1, 1/2, 1/4 or 1/8 of the size, rounded up.
        smoothing: Apply block smoothing to files that lack scans, as programs built on libjpeg do.
        max_pixels: Images with more pixels are refused.
        name: Name of the image in error messages.

    Raises:
        RecordError: the file cannot be decoded, or has more pixels than `max_pixels`.
        ValueError: the scale or the rectangle is invalid.
    """
    denominator = next((d for d in (1, 2, 4, 8) if scale * d == 1), None)
    if denominator is None:
        raise ValueError(f"scale={scale}: wanted 1, 1/2, 1/4 or 1/8")
    frame = _check(data, name, max_pixels)
    height, width = -(-frame.height_px // denominator), -(-frame.width_px // denominator)
    top, left, rows, columns = rectangle or (0, 0, height, width)
    fits = min(top, left, rows - 1, columns - 1) >= 0 and top + rows <= height and left + columns <= width
    if rectangle is not None and not fits:
        raise ValueError(f"rectangle: {rectangle} is not within the {height} rows and {width} columns")
    decoder = find_decoder()
    if decoder is not None:
        decoder = decoder.only(_COMPLETE) if smoothing else decoder
        try:
            return decoder.decode(data, denominator, top, left, rows, columns)
        except ImageError:
            pass
    if denominator == 1:
        pixels = _decode(data, name, frame)
    else:
        pixels = _decode(data, name, frame, height, width)
        if pixels.shape[:2] != (height, width):  # by Pillow, or so small that scales coincide
            import cv2  # late: commands that only name records do not need it

            small = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
            pixels = np.asarray(small, dtype=np.uint8)
    return pixels[top : top + rows, left : left + columns]


def _check(jpeg: Buffer, name: str, max_pixels: int) -> Frame:
    """Check and return the frame header, before any decoder gets the file: decoders trust it."""
    try:
        return check_frame(jpeg, max_pixels)
    except ImageError as error:
        raise RecordError(
            f"{name} cannot be decoded: {error}. If it comes from a record, its checksum matched, so it was "
            "stored like this. Remove the image from the dataset and encode again, or raise max_pixels "
            "(records.max_pixels) if it is just large."
        ) from error


def _decode(jpeg: Buffer, name: str, frame: Frame, min_height: int = 0, min_width: int = 0) -> Pixels:
    """Decode at libjpeg's smallest scale that gives at least `min_height` x `min_width` pixels."""
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
                # Checked only now: almost all images have these colours, and need no second parse.
                if _colours(jpeg) in _COLOURS_OF_LIBJPEG:
                    raise
        # Not `Image.open`, which accepts other formats too, and has its own pixel limit.
        with JpegImageFile(io.BytesIO(jpeg)) as image:
            if image.size != (frame.width_px, frame.height_px):  # Pillow uses the last of several
                raise ValueError("its frame headers (SOF) contradict each other")
            return np.asarray(image.convert("RGB"))
    except (ValueError, KeyError, OSError, SyntaxError) as error:
        raise RecordError(
            f"{name} cannot be decoded: {error}. If it comes from a record, its checksum matched, so it was "
            "stored like this. Remove the image from the dataset and encode again."
        ) from error


def _colours(jpeg: Buffer) -> str:
    try:
        _, _, colours, _ = simplejpeg.decode_jpeg_header(jpeg)
    except (ValueError, KeyError):
        return "unknown"
    return str(colours)


class _Wanted(NamedTuple):
    """Coefficients that a file must hold for `decoder.c` to decode it, and the scale to decode at."""

    prefix: Prefix
    denominator: int = 1


def _complete(layout: Layout, prefix: Prefix | None) -> _Wanted:  # noqa: ARG001
    return _Wanted(_COMPLETE)


def _unsmoothed(layout: Layout, prefix: Prefix | None) -> _Wanted | None:
    """None for files in which libjpeg's smoothing cannot be switched off; libjpeg decodes these."""
    if prefix and can_be_switched_off(prefix, layout.tables, has_wide_tables=layout.has_wide_tables):
        return _Wanted(prefix)
    return None


def _scaled(layout: Layout, prefix: Prefix | None) -> _Wanted | None:
    wanted = _unsmoothed(layout, prefix)
    is_small = min(layout.frame[:2]) < _SMALLEST_SCALED_PX
    return wanted if wanted is None or is_small else _Wanted(wanted.prefix, wanted.prefix.denominator)


def _baseline_by_libjpeg(jpeg: Buffer, prefix: Prefix | None, name: str, frame: Frame) -> Source:  # noqa: ARG001
    # A progressive file might lack scans and be smoothed, so libjpeg decodes it as a whole.
    return (_whole if frame.code == PROGRESSIVE_CODE else _in_parts)(jpeg, name, frame)


def _smoothed_by_libjpeg(jpeg: Buffer, prefix: Prefix | None, name: str, frame: Frame) -> Source:
    return (_whole if prefix is None or prefix.is_smoothed else _in_parts)(jpeg, name, frame)


def _unsmoothed_by_libjpeg(jpeg: Buffer, prefix: Prefix | None, name: str, frame: Frame) -> Source:
    return _without_smoothing(jpeg, prefix, name, frame, 1)


def _scaled_by_libjpeg(jpeg: Buffer, prefix: Prefix | None, name: str, frame: Frame) -> Source:
    return _without_smoothing(jpeg, prefix, name, frame, prefix.denominator if prefix else 1)


def _without_smoothing(
    jpeg: Buffer, prefix: Prefix | None, name: str, frame: Frame, denominator: int
) -> Source:
    try:
        header = read_progressive(jpeg) if prefix else None
        unsmoothed = without_smoothing(jpeg, header, prefix) if header and prefix else None
    except (ImageError, IndexError):  # damaged: the decoder reports it better
        header = unsmoothed = None
    if header is None or len(header.tables) == 4:
        return _whole(jpeg, name, frame)
    if min(header.height_px, header.width_px) < _SMALLEST_SCALED_PX:
        denominator = 1
    if denominator == 1 and unsmoothed is None:
        return _whole(jpeg, name, frame)
    return _in_parts(unsmoothed or jpeg, name, frame, denominator)


def _whole(jpeg: Buffer, name: str, frame: Frame) -> Source:
    return DecodedImage(_decode(jpeg, name, frame))


def _in_parts(jpeg: Buffer, name: str, frame: Frame, denominator: int = 1) -> Source:
    """Decode parts, for unsmoothed files only: smoothed pixels differ between versions of libjpeg-turbo."""
    size = frame.height_px, frame.width_px

    def whole() -> Source:
        if denominator == 1:
            return DecodedImage(_decode(jpeg, name, frame))
        pixels = _decode(jpeg, name, frame, -(-size[0] // denominator), -(-size[1] // denominator))
        return DecodedImage(pixels, size, denominator)

    return decoded_by(find_part_decoder(), jpeg, whole, denominator)


class _Mode(NamedTuple):
    """Which files `decoder.c` decodes, if it was built, and how libjpeg decodes all others."""

    wanted: Callable[[Layout, Prefix | None], _Wanted | None] | None
    by_libjpeg: Callable[[Buffer, Prefix | None, str, Frame], Source]


_MODES = {
    "libjpeg": _Mode(None, _smoothed_by_libjpeg),
    "unsmoothed": _Mode(_unsmoothed, _unsmoothed_by_libjpeg),
    "scaled": _Mode(_scaled, _scaled_by_libjpeg),
}
"""By their name in `loader.decode`."""

_BASELINE = _Mode(_complete, _baseline_by_libjpeg)


def open_decoder(
    mode: str, encoding: str, max_pixels: int = MAX_PIXELS, script: ScanScript = DEFAULT
) -> Decoder:
    """Return the JPEG decoder for `loader.decode=<mode>` and records in `encoding` (`pcr` or `baseline`).

    Images of more than `max_pixels` (`records.max_pixels`) are refused before anything is decoded. `script`
    is the scan script of progressive images.

    Files of baseline records have all their scans, whatever group is read. Nothing in them is smoothed, and
    nothing may be missing.
    """
    if encoding != "pcr":
        return partial(_open, _BASELINE, {}, script.num_groups, max_pixels)
    groups = range(1, script.num_groups + 1)
    prefixes = {(number, group): prefix_of(script, number, group) for number in (1, 3) for group in groups}
    return partial(_open, _MODES[mode], prefixes, script.num_groups, max_pixels)


def _open(
    mode: _Mode,
    prefixes: Mapping[tuple[int, int], Prefix],
    num_groups: int,
    max_pixels: int,
    jpeg: Buffer,
    group: int,
    name: str,
) -> Source:
    group = min(group, num_groups)

    def otherwise() -> Source:
        frame = _check(jpeg, name, max_pixels)
        return mode.by_libjpeg(jpeg, prefixes.get((frame.num_components, group)), name, frame)

    decoder = find_decoder() if mode.wanted else None
    if decoder is None or mode.wanted is None:
        return otherwise()
    try:
        layout = decoder.read_layout(jpeg)  # in C: `_check` takes a twentieth of the decoding time
    except ImageError:
        return otherwise()
    wanted = mode.wanted(layout, prefixes.get((len(layout.tables), group)))
    if wanted is None or layout.frame.height_px * layout.frame.width_px > max_pixels:
        return otherwise()
    return PartlyDecodedImage(jpeg, decoder.only(wanted.prefix), otherwise, wanted.denominator, layout.frame)


class _Jpeg:
    """Common base of both JPEG codecs."""

    def check(self, original: bytes, max_pixels: int) -> None:
        """Refuse files that are too large, or not 8-bit Huffman-coded DCT JPEGs."""
        refuse_unsupported(original, max_pixels)

    def is_turned(self, original: bytes) -> bool:
        """Whether the EXIF orientation is other than upright."""
        return read_orientation(original) != UPRIGHT


@dataclass(frozen=True)
class ProgressiveJpeg(_Jpeg):
    """Scan i of the losslessly transcoded file is group i; surplus scans join the last group."""

    script: ScanScript = DEFAULT

    @property
    def name(self) -> str:
        """The script's id."""
        return self.script.id

    @property
    def num_groups(self) -> int:
        """Number of scans in the script."""
        return self.script.num_groups

    def check_installed(self) -> None:
        """Raise RecordError, naming what to install, if nothing installed can write the script."""
        find_writer(self.script)

    def encode(self, original: bytes, max_pixels: int = MAX_PIXELS) -> bytes:
        """Recode the same quantised coefficients in the script's scans."""
        return to_progressive(original, max_pixels, self.script)

    def split(self, encoded: bytes) -> list[bytes]:
        """Split into scans, without the end-of-image marker, which `join` adds."""
        return group_pieces(split_scans(encoded), self.num_groups)

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        """Return the scans, then the end-of-image marker."""
        return (*pieces, EOI)

    def open_decoder(self, mode: str, max_pixels: int = MAX_PIXELS) -> Decoder:
        """See `open_decoder`."""
        return open_decoder(mode, "pcr", max_pixels, self.script)


class WholeJpeg(_Jpeg):
    """Stores the original file in one group."""

    name = SCANS["baseline"]
    num_groups = 1

    def check_installed(self) -> None:
        """Do nothing: no library is needed."""

    def encode(self, original: bytes, max_pixels: int = MAX_PIXELS) -> bytes:  # noqa: ARG002
        """Return the original file."""
        return original

    def split(self, encoded: bytes) -> list[bytes]:
        """Return the file as the only piece."""
        return [encoded]

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        """Return the only piece."""
        return pieces

    def open_decoder(self, mode: str, max_pixels: int = MAX_PIXELS) -> Decoder:
        """See `open_decoder`."""
        return open_decoder(mode, "baseline", max_pixels)


PROGRESSIVE = ProgressiveJpeg()
WHOLE = WholeJpeg()


@register("images.codec", PROGRESSIVE.name)
def open_progressive() -> ProgressiveJpeg:
    """Return the default codec of records."""
    return PROGRESSIVE


@register(FAMILIES, FAMILY)
def open_progressive_by(name: str) -> ProgressiveJpeg:
    """Return the codec for any other scan script. Raises ValueError unless `name` is a script's id."""
    return ProgressiveJpeg(script_of(name))


@register("images.codec", WholeJpeg.name)
def open_whole() -> WholeJpeg:
    """Return the codec of baseline records."""
    return WHOLE
