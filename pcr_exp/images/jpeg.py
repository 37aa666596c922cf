"""JPEG files as bytes: marker segments, scans, and the pieces that scan groups hold.

Terms and markers follow ITU-T T.81. All functions are pure, and find segments by their stated lengths.
Searching for a marker's bytes would also find those of an EXIF thumbnail.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer

SOI = b"\xff\xd8"
EOI = b"\xff\xd9"
_EOI_CODE = 0xD9
_SOS_CODE = 0xDA
MAX_SCANS = 64
"""Programs write at most 18; a file of 10 kB can hold thousands."""
PROGRESSIVE_CODE = 0xC2
_FRAME_CODES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""SOF0..SOF15: all of C0..CF but DHT, JPG and DAC."""
_CODES_WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})

_APP1_CODE = 0xE1
_EXIF_HEADER = b"Exif\x00\x00"
_ORIENTATION_TAG = 0x0112
_SHORT_TYPE = 3
UPRIGHT = 1

_FILL = re.compile(rb"\xff*")
_SOS = re.compile(rb"\xff\xda")
_SHORT_FILE_BYTES = 20_000
"""From this size on, a regular expression is slower than NumPy: it takes twice as long at 100 kB."""
_END_OF_ENTROPY_DATA = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A marker that is not a stuffed FF (00), a restart (D0..D7) or a fill byte (FF)."""


class Segment(NamedTuple):
    """One marker segment, `jpeg[start:end]`; SOS includes the scan's entropy-coded data."""

    code: int
    start: int
    payload: int
    """Offset of the bytes after the length field."""
    end: int


class Frame(NamedTuple):
    """The frame header (SOF)."""

    code: int
    """The marker's second byte: C0 baseline, C1 extended, C2 progressive, C3 lossless, C9.. arithmetic."""
    precision_bits: int
    width_px: int
    height_px: int
    num_components: int


class JpegHeader(NamedTuple):
    """Summary of a file's frame, and its number of scans."""

    width_px: int
    height_px: int
    num_components: int
    is_progressive: bool
    num_scans: int


def segments(jpeg: Buffer) -> Iterator[Segment]:
    """Yield all segments after SOI, up to and including EOI, without gaps. Bytes after EOI are ignored.

    Raises:
        ImageError: the bytes are not a JPEG, are damaged, or end before EOI. Raised on reaching that place.
    """
    if jpeg[: len(SOI)] != SOI:
        raise ImageError("not a JPEG: it does not begin with FF D8")
    position, size = 2, len(jpeg)
    while True:
        start = position
        if start + 2 < size and jpeg[start] == 0xFF != jpeg[start + 1]:
            position = start + 1  # the usual case: no fill bytes, so no regular expression
        else:
            position = _FILL.match(jpeg, start).end()  # type: ignore[union-attr]  # matches nothing, too
        if position >= size:
            raise ImageError("truncated: the file ends without an end-of-image marker")
        if position == start:
            raise ImageError(f"damaged: wanted a marker at byte {position}, found {jpeg[position]:02X}")
        code = jpeg[position]
        if code == _EOI_CODE:
            yield Segment(code, start, position + 1, position + 1)
            return
        if code in _CODES_WITHOUT_LENGTH:
            raise ImageError(f"damaged: marker FF {code:02X} at byte {position - 1} is not allowed there")
        payload = position + 3
        if payload <= size:
            length = jpeg[position + 1] << 8 | jpeg[position + 2]
        else:
            length = int.from_bytes(jpeg[position + 1 : payload], "big")
        end = position + 1 + length
        if end > size or payload > size:
            raise ImageError(f"truncated: the file ends inside the segment of marker FF {code:02X}")
        if length < 2:
            raise ImageError(f"damaged: the segment of marker FF {code:02X} gives its length as {length}")
        if code == _SOS_CODE:
            marker = _END_OF_ENTROPY_DATA.search(jpeg, end)
            if marker is None:
                raise ImageError("truncated: the file ends inside a scan")
            end = marker.start()
        yield Segment(code, start, payload, end)
        position = end


def read_frame(jpeg: Buffer) -> Frame:
    """Return the frame header, reading nothing after it. Raises ImageError if a scan comes first."""
    for segment in segments(jpeg):
        if segment.code in _FRAME_CODES:
            return _parse_frame(jpeg, segment)
        if segment.code in (_SOS_CODE, _EOI_CODE):
            break
    raise ImageError("damaged: no frame header (SOF) before the first scan")


def check_frame(jpeg: Buffer, max_pixels: int) -> Frame:
    """Return the frame header, having checked that the file is not too large for decoders.

    Raises:
        ImageError: as `read_frame` does; also for more than `max_pixels` pixels or `MAX_SCANS` scans.
    """
    frame = read_frame(jpeg)
    if frame.width_px * frame.height_px > max_pixels:
        raise ImageError(f"{frame.width_px} x {frame.height_px} pixels are more than max_pixels={max_pixels}")
    # Usually few. Matches may be part of a thumbnail, so if there are many, real scans are counted.
    if _count_sos(jpeg) > MAX_SCANS:
        num_scans = sum(segment.code == _SOS_CODE for segment in segments(jpeg))
        if num_scans > MAX_SCANS:
            raise ImageError(
                f"{num_scans} scans are more than {MAX_SCANS}: decoders pass over all pixels for each"
            )
    return frame


def _count_sos(jpeg: Buffer) -> int:
    """Count occurrences of an SOS marker's bytes, wherever they are."""
    if len(jpeg) < _SHORT_FILE_BYTES:
        return len(_SOS.findall(jpeg))
    octets = np.frombuffer(jpeg, dtype=np.uint8)
    return int(np.count_nonzero((octets[:-1] == 0xFF) & (octets[1:] == _SOS_CODE)))


def read_header(jpeg: bytes) -> JpegHeader:
    """Read size, components, coding and number of scans from all segments of a file.

    Raises:
        ImageError: as `segments` and `read_frame` do.
    """
    frame = read_frame(jpeg)
    num_scans = sum(segment.code == _SOS_CODE for segment in segments(jpeg))
    is_progressive = frame.code == PROGRESSIVE_CODE
    return JpegHeader(frame.width_px, frame.height_px, frame.num_components, is_progressive, num_scans)


def split_scans(jpeg: bytes) -> list[bytes]:
    """Cut a file into one piece per scan, such that `join_pieces` restores the file.

    Piece 0 runs from SOI to the end of scan 1. Piece i is scan i+1, with the tables (DHT) before its SOS.
    Segments between the last scan and EOI belong to the last piece. EOI is in no piece.

    Raises:
        ImageError: as `segments` does; also if there is no scan, or bytes follow EOI (they would be lost).
    """
    cuts = [0]
    end = 0
    for segment in segments(jpeg):
        end = segment.end
        if segment.code == _SOS_CODE:
            cuts.append(segment.end)
    if len(cuts) == 1:
        raise ImageError("damaged: the file holds no scan")
    if len(jpeg) > end:
        raise ImageError(f"damaged: {len(jpeg) - end} bytes after the end-of-image marker")
    cuts[-1] = end - len(EOI)
    return [jpeg[start:stop] for start, stop in pairwise(cuts)]


def group_pieces(pieces: Sequence[bytes], num_groups: int = 10) -> list[bytes]:
    """Put scan i into group i. Groups without a scan are empty; surplus scans join the last group."""
    groups = [*pieces[: num_groups - 1], b"".join(pieces[num_groups - 1 :])]
    return groups + [b""] * (num_groups - len(groups))


def join_pieces(pieces: Sequence[Buffer]) -> bytes:
    """Join the first pieces of an image into a decodable file: the pieces in order, then EOI."""
    return b"".join((*pieces, EOI))


def _parse_frame(jpeg: Buffer, segment: Segment) -> Frame:
    # T.81 B.2.2: precision (1 byte), lines (2), samples per line (2), components (1).
    at = segment.payload
    if segment.end - at < 6:
        raise ImageError("damaged: the frame header (SOF) is too short")
    height_px, width_px = jpeg[at + 1] << 8 | jpeg[at + 2], jpeg[at + 3] << 8 | jpeg[at + 4]
    return Frame(segment.code, jpeg[at], width_px, height_px, jpeg[at + 5])


def read_orientation(jpeg: bytes) -> int:
    """Return the EXIF orientation, which viewers apply and training does not.

    It is 1 (upright; also if EXIF lacks it or is invalid) to 8, from the EXIF segment before the first scan.

    EXIF 2.32, section 4.6.2: a TIFF header, then image file directory 0 with 12 bytes per entry.
    Raises ImageError if the bytes up to there are not a JPEG.
    """
    for segment in segments(jpeg):
        if segment.code == _SOS_CODE:
            break
        if segment.code == _APP1_CODE and jpeg.startswith(_EXIF_HEADER, segment.payload):
            return _from_tiff(jpeg[segment.payload + len(_EXIF_HEADER) : segment.end])
    return UPRIGHT


def _from_tiff(tiff: bytes) -> int:
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return UPRIGHT
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (num_entries,) = struct.unpack_from(f"{order}H", tiff, directory)
        for entry in range(num_entries):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, directory + 2 + 12 * entry)
            if tag == _ORIENTATION_TAG and kind == _SHORT_TYPE:
                return value if 1 <= value <= 8 else UPRIGHT
    except struct.error:  # damaged EXIF is harmless: decoders skip it, and so do we
        pass
    return UPRIGHT
