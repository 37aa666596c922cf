"""The EXIF orientation of a JPEG: what a viewer turns an image by, and what training does not see."""

from __future__ import annotations

import struct

from pcr_exp.images.jpeg import segments

_APP1_CODE = 0xE1
_SOS_CODE = 0xDA
_EXIF_HEADER = b"Exif\x00\x00"
_ORIENTATION_TAG = 0x0112
_SHORT_TYPE = 3
UPRIGHT = 1


def read_orientation(jpeg: bytes) -> int:
    """1 (upright, also if EXIF says nothing or nonsense) to 8, from the EXIF segment before the first scan.

    EXIF 2.32, section 4.6.2: a TIFF header, then image file directory 0 with 12 bytes per entry.
    Raises ImageError where the bytes up to there are no JPEG.
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
    except struct.error:  # damaged EXIF harms nobody: decoders skip it, and so do we
        pass
    return UPRIGHT
