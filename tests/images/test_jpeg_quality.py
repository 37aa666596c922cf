"""JPEG quality is estimated from a file's quantisation tables; libjpeg is the oracle."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from pcr_exp.errors import ImageError
from pcr_exp.images.jpeg_quality import estimate_quality
from pcr_exp.images.transcode import to_progressive


def jpeg(quality: int, mode: str = "RGB", **settings: object) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", quality=quality, **settings)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_libjpegs_qualities_are_told_exactly(mode: str):
    assert [estimate_quality(jpeg(quality, mode)) for quality in range(1, 101)] == list(range(1, 101))


def test_tables_of_sixteen_bits_are_read():
    file = io.BytesIO()
    tables = [[min(65535, 300 + i) for i in range(64)]]
    Image.new("L", (16, 16)).save(file, "JPEG", qtables=tables)
    assert estimate_quality(file.getvalue()) in range(1, 10)


def test_tables_of_another_program_are_told_by_the_nearest():
    table = Image.open(io.BytesIO(jpeg(80))).quantization[0]  # type: ignore[attr-defined]
    nearly = [max(1, value - i % 2) for i, value in enumerate(table)]
    file = io.BytesIO()
    Image.new("L", (16, 16)).save(file, "JPEG", qtables=[nearly])
    assert estimate_quality(file.getvalue()) in range(79, 84)


def test_transcoding_changes_no_table():
    assert estimate_quality(to_progressive(jpeg(87))) == 87


def test_files_without_a_table():
    with pytest.raises(ImageError, match="not a JPEG"):
        estimate_quality(b"\x89PNG")
    with pytest.raises(ImageError, match="no luma quantisation table"):
        estimate_quality(b"\xff\xd8\xff\xd9")
    with pytest.raises(ImageError, match="quantisation table is cut short"):
        estimate_quality(b"\xff\xd8\xff\xdb\x00\x05\x00\x01\x02\xff\xd9")
