"""JPEG test files: one photograph in common JPEG variants, and other ways to write the tables."""

from __future__ import annotations

import functools
import io
import shutil
from collections.abc import Callable
from itertools import pairwise

import pytest
import skimage.data
from PIL import Image

from pcr_exp.config.scan_scripts import script_of
from pcr_exp.images.jpeg import group_pieces, segments, split_scans
from pcr_exp.images.transcode import to_progressive

PHOTO = Image.fromarray(skimage.data.astronaut()[:151, 100:299])


def to_jpeg(image: Image.Image, **options: object) -> bytes:
    """Return the JPEG file that Pillow saves."""
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

COVERED = ("444", "422", "420", "grey", "shared table", "tiny")
"""Keys of KINDS that our decoder is for."""

OTHERS = {
    "spectral": script_of("jpeg_012.0.0.0.0_0.1.2.0.0_0.3.9.0.0_1.1.63.0.0_2.1.63.0.0_0.10.63.0.0"),
    "two_step": script_of("jpeg_012.0.0.0.0_0.1.9.0.0_1.1.63.0.0_2.1.63.0.0_0.10.63.0.1_0.10.63.1.0"),
    "chroma_last": script_of("jpeg_012.0.0.0.1_0.1.1.0.2_0.2.63.0.1_0.1.1.2.1_0.1.63.1.0_012.0.0.1.0"
    "_1.1.63.0.0_2.1.63.0.0"),
}  # fmt: skip
"""Scan scripts other than libjpeg's default, by name."""

needs_jpegtran = pytest.mark.skipif(
    shutil.which("jpegtran") is None,
    reason="jpegtran is not installed (apt install libjpeg-turbo-progs): nothing writes other scripts",
)


@functools.cache
def groups_of(kind: str) -> list[bytes]:
    """Return the pieces of the ten scan groups."""
    return group_pieces(split_scans(to_progressive(KINDS[kind])))


def merge_tables(jpeg: bytes) -> bytes:
    """Write all quantisation tables in one segment."""
    return _with_tables(jpeg, lambda number, values: bytes([number]) + values)


def widen_tables(jpeg: bytes) -> bytes:
    """Write all quantisation tables in one segment, with 16 bits per entry."""
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


def restarts(*, rows: int = 0, blocks: int = 0, progressive: bool, subsampling: int = 2) -> bytes:
    return to_jpeg(
        PHOTO, quality=92, progressive=progressive, restart_marker_rows=rows, restart_marker_blocks=blocks,
        subsampling=subsampling,
    )  # fmt: skip
