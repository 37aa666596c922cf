"""Estimates the quality at which a JPEG file was written from its quantisation tables."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Buffer
from pcr_exp.images.jpeg import segments

# T.81 table K.1, in zigzag order as in files. libjpeg scales it by the quality.
_LUMA = np.array(
    [
        *(16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40),
        *(26, 24, 22, 22, 24, 49, 35, 37, 29, 40, 58, 51, 61, 60, 57, 51),
        *(56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87),
        *(95, 98, 103, 104, 103, 62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99),
    ]
)
_DQT_CODE, _SOS_CODE = 0xDB, 0xDA
_NUM_ENTRIES = 64
_LUMA_TABLE = 0


def estimate_quality(jpeg: Buffer) -> int:
    """Return the libjpeg quality (1 to 100) of the luma table nearest to the file's; exact for libjpeg files.

    Raises:
        ImageError: the bytes are not a JPEG, or have no luma table before the first scan.
    """
    table = _luma_table(jpeg)
    return 1 + int(np.abs(_tables() - table).sum(axis=1).argmin())


@cache
def _tables() -> npt.NDArray[np.int64]:
    """[100, 64] libjpeg's luma table at each quality (jcparam.c, jpeg_quality_scaling)."""
    quality = np.arange(1, 101)
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    return np.clip((_LUMA * scale[:, None] + 50) // 100, 1, 255)


def _luma_table(jpeg: Buffer) -> npt.NDArray[np.int64]:
    for segment in segments(jpeg):
        if segment.code == _SOS_CODE:
            break
        position = segment.payload
        while segment.code == _DQT_CODE and position < segment.end:
            entry_bytes, number = 1 + (jpeg[position] >> 4), jpeg[position] & 15
            end = position + 1 + _NUM_ENTRIES * entry_bytes
            if end > segment.end:
                raise ImageError("damaged: a quantisation table is cut short")
            if number == _LUMA_TABLE:
                kind = "B" if entry_bytes == 1 else "H"
                return np.array(struct.unpack(f">{_NUM_ENTRIES}{kind}", jpeg[position + 1 : end]))
            position = end
    raise ImageError("damaged: no luma quantisation table before the first scan")
