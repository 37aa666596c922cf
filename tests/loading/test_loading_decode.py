"""Pixels: equal at baseline and at group 10, equal to Pillow's, and refused when a scan is cut short."""

import io
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from PIL import Image

from pcr_exp.errors import RecordError
from pcr_exp.loading.decode import decode
from pcr_exp.records.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.transcode import to_progressive
from pcr_exp.storage.local import LocalStorage

PHOTO = Image.fromarray(skimage.data.astronaut()[:151, 100:299])
SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def to_jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def by_pillow(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))


KINDS = {
    "444": to_jpeg(PHOTO, quality=95, subsampling=0),
    "422": to_jpeg(PHOTO, quality=85, subsampling=1),
    "420": to_jpeg(PHOTO, quality=75, subsampling=2),
    "grey": to_jpeg(PHOTO.convert("L"), quality=80),
    "rgb": to_jpeg(PHOTO, quality=80, keep_rgb=True),
    "cmyk": to_jpeg(PHOTO.convert("CMYK"), quality=80),
    "tiny": to_jpeg(PHOTO.resize((1, 3)), quality=80),
}


@pytest.mark.parametrize("kind", KINDS)
def test_baseline_group_10_and_pillow_give_the_same_pixels(kind: str) -> None:
    baseline = KINDS[kind]
    pixels = decode(baseline)
    assert pixels.shape == by_pillow(baseline).shape
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, by_pillow(baseline))
    progressive = join_pieces(group_pieces(split_scans(to_progressive(baseline))))
    assert np.array_equal(pixels, decode(progressive))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", range(1, 10))
def test_a_prefix_of_groups_decodes(kind: str, group: int) -> None:
    pieces = group_pieces(split_scans(to_progressive(KINDS[kind])))
    prefix = join_pieces(pieces[:group])
    assert np.array_equal(decode(prefix), by_pillow(prefix))


@pytest.mark.parametrize("kind", ["444", "420", "grey"])
@pytest.mark.parametrize("group", [1, 2, 5, 6])
def test_a_scan_that_is_cut_short_is_refused(kind: str, group: int) -> None:
    pieces = group_pieces(split_scans(to_progressive(KINDS[kind])))[:group]
    cut = [*pieces[:-1], pieces[-1][:-30]]
    with pytest.raises(RecordError, match=r"^sample 7 \(record a\.pcr\) cannot be decoded: .*[Pp]remature"):
        decode(join_pieces(cut), "sample 7 (record a.pcr)")


@pytest.mark.parametrize("content", [b"", b"not a JPEG", KINDS["420"][:100], KINDS["cmyk"][:2000]])
def test_what_is_no_jpeg_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(RecordError, match=r"^sample 7 cannot be decoded"):
        decode(content, "sample 7")


def test_adobes_inverted_inks_are_turned() -> None:
    """Of white paper, all inks are zero: the picture must come out white, not black."""
    white = to_jpeg(Image.new("CMYK", (16, 16), (0, 0, 0, 0)))
    assert b"Adobe" in white
    assert decode(white).min() >= 250


def test_real_photographs_are_the_same_in_both_encodings(split: Path) -> None:
    storage = LocalStorage(split)
    whole, baseline = RecordSet(storage, "pcr"), RecordSet(storage, "baseline")
    for record in range(len(whole.index.records)):
        a, b = whole.read_prefix(record, 10), baseline.read_prefix(record, 1)
        for i in range(len(a)):
            assert np.array_equal(decode(a.jpeg(i)), decode(b.jpeg(i)))


def test_imagenet_files_are_the_same_in_both_encodings() -> None:
    files = sorted((SHARED / "imagenet_native_sample").glob("*/*.JPEG"))[::10]
    if not files:
        pytest.skip("../shared/data is not here: no ImageNet files to decode")
    for file in files:
        baseline = file.read_bytes()
        pixels = decode(baseline)
        assert np.array_equal(pixels, by_pillow(baseline)), file.name
        assert np.array_equal(pixels, decode(to_progressive(baseline))), file.name
