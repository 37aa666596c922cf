"""JPEGs to damage, and crafted ones that push a decoder to the limits of its memory or time."""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Sequence
from itertools import product

import numpy as np
import simplejpeg
from jpeg_photos import to_jpeg
from PIL import Image

from pcr_exp.images.jpeg import EOI, SOI, group_pieces, join_pieces, split_scans
from pcr_exp.images.transcode import to_progressive

SUBSAMPLINGS = ("444", "422", "420", "440", "Gray")
SIZES_PX = ((1, 1), (19, 9), (33, 40))


def segment(code: int, content: bytes) -> bytes:
    return bytes([0xFF, code]) + struct.pack(">H", 2 + len(content)) + content


def quantisers() -> bytes:
    return segment(0xDB, bytes([0, *[1] * 64]))


def codes(*, is_ac: bool, counts: Sequence[int], symbols: Sequence[int]) -> bytes:
    """Return a Huffman table. `counts` holds the number of codes of 1, 2, ... bits."""
    return segment(0xC4, bytes([is_ac << 4, *counts, *[0] * (16 - len(counts)), *symbols]))


def grey_frame(code: int, height: int, width: int) -> bytes:
    return segment(code, struct.pack(">BHHB", 8, height, width, 1) + bytes([1, 0x11, 0]))


def scan(first: int, last: int, high: int, low: int, data: bytes) -> bytes:
    return segment(0xDA, bytes([1, 1, 0, first, last, high << 4 | low])) + data


def bits(text: str) -> bytes:
    text += "1" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")


LONG = [0] * 15 + [1]
"""A single code, of sixteen zero bits."""
DC_CODES = codes(is_ac=False, counts=[1, 1], symbols=[0, 11])
"""Code 0: same DC value as in the block before. Code 10: a difference of 11 bits follows."""
END_CODES = codes(is_ac=True, counts=[1], symbols=[0])
"""Code 0: end of block."""


def block_behind_the_end() -> bytes:
    """Decoders read zeros beyond a scan's end; here those zeros are coefficients of 26 bits each."""
    tables = codes(is_ac=False, counts=LONG, symbols=[11]) + codes(is_ac=True, counts=LONG, symbols=[10])
    return SOI + quantisers() + grey_frame(0xC0, 8, 8) + tables + scan(0, 63, 0, 0, b"\0") + EOI


def means_beyond_32_bits() -> bytes:
    """Each DC value exceeds the one before by 2047 * 2^13."""
    data = bits(("10" + "1" * 11) * 256)
    return SOI + quantisers() + grey_frame(0xC2, 8, 2048) + DC_CODES + scan(0, 0, 0, 13, data) + EOI


def many_restarts(side_px: int = 24) -> bytes:
    """One scan per coefficient (64 scans), each with a restart at every block."""
    blocks = (side_px // 8) ** 2
    data = b"".join(b"\x7f\xff" + bytes([0xD0 + i % 8]) for i in range(blocks))[:-2]
    every = segment(0xDD, struct.pack(">H", 1))
    scans = b"".join(scan(k, k, 0, 0, data) for k in range(1, 64))
    header = SOI + quantisers() + grey_frame(0xC2, side_px, side_px) + DC_CODES + END_CODES
    return header + every + scan(0, 0, 0, 0, data) + scans + EOI


def huge(code: int, height: int) -> bytes:
    """An image 65,500 pixels wide with 100 bytes of data, all zero."""
    data = scan(0, 0 if code == 0xC2 else 63, 0, 0, bytes(100))
    return SOI + quantisers() + grey_frame(code, height, 65500) + DC_CODES + END_CODES + data + EOI


def short_jfif(size: int) -> bytes:
    """libjpeg ignores JFIF segments of less than 14 bytes; component names then give the colour space."""
    with Image.open(io.BytesIO(small(33, 40, "444"))) as image:
        jpeg = to_jpeg(image.convert("RGB"), keep_rgb=True)
    return SOI + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"[:size]) + jpeg[jpeg.index(b"\xff\xdb") :]


def small(height: int, width: int, subsampling: str) -> bytes:
    """Noise in squares of 3 x 3 pixels."""
    noise = np.random.default_rng(height).normal(128, 51, (-(-height // 3), -(-width // 3), 3))
    pixels = np.clip(noise, 0, 255).astype(np.uint8).repeat(3, 0).repeat(3, 1)[:height, :width]
    shown = np.ascontiguousarray(pixels[..., :1] if subsampling == "Gray" else pixels)
    return simplejpeg.encode_jpeg(shown, 90, "Gray" if subsampling == "Gray" else "RGB", subsampling)


CRAFTED = {
    "a block behind the end": block_behind_the_end(),
    "means beyond 32 bits": means_beyond_32_bits(),
    "many restarts": many_restarts(),
    "huge": huge(0xC0, 4000),
    "huge, progressive": huge(0xC2, 4000),
    "huge beyond any limit": huge(0xC0, 65500),
    "JFIF of 12 bytes": short_jfif(12),
    "JFIF of 13 bytes": short_jfif(13),
}


@functools.cache
def records(group: int) -> tuple[bytes, ...]:
    """Small files as a loader reads them at a scan group; group 0 means baseline records."""
    originals = [small(height, width, kind) for (height, width), kind in product(SIZES_PX, SUBSAMPLINGS)]
    if group == 0:
        return *originals, *restarting(progressive=False)
    return tuple(join_pieces(group_pieces(split_scans(to_progressive(jpeg)))[:group]) for jpeg in originals)


def restarting(*, progressive: bool) -> list[bytes]:
    with Image.open(io.BytesIO(small(40, 30, "444"))) as image:
        return [
            to_jpeg(image, progressive=progressive, subsampling=subsampling, restart_marker_blocks=blocks)
            for subsampling, blocks in product((0, 2), (1, 3))
        ]


def framed(files: Sequence[bytes]) -> bytes:
    """Join the files, each preceded by its length, as decoder_checked.c reads and writes them."""
    return b"".join(len(file).to_bytes(4, "little") + file for file in files)


def unframed(content: bytes) -> list[bytes]:
    files = []
    while content:
        end = 4 + int.from_bytes(content[:4], "little")
        files.append(content[4:end])
        content = content[end:]
    return files
