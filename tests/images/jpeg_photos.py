"""JPEG files to decode: a photograph in the kinds that people have, and other ways to write their tables."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from itertools import pairwise

import skimage.data
from PIL import Image

from pcr_exp.images.jpeg import group_pieces, segments, split_scans
from pcr_exp.images.transcode import to_progressive

PHOTO = Image.fromarray(skimage.data.astronaut()[:151, 100:299])


def to_jpeg(image: Image.Image, **options: object) -> bytes:
    """What Pillow saves."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


KINDS = {
    "444": to_jpeg(PHOTO, quality=95, subsampling=0),
    "422": to_jpeg(PHOTO, quality=85, subsampling=1),
    "420": to_jpeg(PHOTO, quality=75, subsampling=2),
    "grey": to_jpeg(PHOTO.convert("L"), quality=80),
    "rgb": to_jpeg(PHOTO, quality=80, keep_rgb=True),
    "shared table": to_jpeg(PHOTO, qtables=[list(range(8, 72))], subsampling=2),
    "cmyk": to_jpeg(PHOTO.convert("CMYK"), quality=80),
    "tiny": to_jpeg(PHOTO.resize((1, 3)), quality=80),
}


@functools.cache
def groups_of(kind: str) -> list[bytes]:
    """The pieces of ten scan groups."""
    return group_pieces(split_scans(to_progressive(KINDS[kind])))


def merge_tables(jpeg: bytes) -> bytes:
    """All quantisation tables in one segment."""
    return _with_tables(jpeg, lambda number, values: bytes([number]) + values)


def widen_tables(jpeg: bytes) -> bytes:
    """All quantisation tables in one segment, with 16 bits per entry."""
    return _with_tables(
        jpeg, lambda number, values: bytes([16 | number]) + b"".join(bytes([0, value]) for value in values)
    )


def _with_tables(jpeg: bytes, write: Callable[[int, bytes], bytes]) -> bytes:
    tables = [segment for segment in segments(jpeg) if segment.code == 0xDB]
    content = b""
    for segment in tables:
        for start in range(segment.payload, segment.end, 65):
            content += write(jpeg[start], jpeg[start + 1 : start + 65])
    merged = b"\xff\xdb" + (2 + len(content)).to_bytes(2, "big") + content
    rest = b"".join(jpeg[before.end : after.start] for before, after in pairwise(tables))
    return jpeg[: tables[0].start] + merged + rest + jpeg[tables[-1].end :]
