"""Pixels are the same for baseline, group 10 and Pillow; truncated scans are refused; the decode modes."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jpeg_photos import KINDS, PHOTO, groups_of, to_jpeg
from PIL import Image

from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.errors import RecordError
from pcr_exp.images.codec import Part, Pixels, Source
from pcr_exp.images.decode import decode, open_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.smoothing import prefix_of, read_progressive, without_smoothing
from pcr_exp.images.transcode import to_progressive
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def by_pillow(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))


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
    """White paper has zero ink of every colour, so the image must come out white, not black."""
    white = to_jpeg(Image.new("CMYK", (16, 16), (0, 0, 0, 0)))
    assert b"Adobe" in white
    assert decode(white).min() >= 250


def test_real_photographs_are_the_same_in_both_encodings(split: Path) -> None:
    storage = LocalStorage(split)
    whole, baseline = RecordSet(storage, "pcr"), RecordSet(storage, "baseline")
    for record in range(len(whole.index.records)):
        a, b = whole.read_prefix(record, 10), baseline.read_prefix(record, 1)
        for i in range(len(a)):
            assert np.array_equal(decode(a.encoded(i)), decode(b.encoded(i)))


def test_imagenet_files_are_the_same_in_both_encodings() -> None:
    files = sorted((SHARED / "imagenet_native_sample").glob("*/*.JPEG"))[::10]
    if not files:
        pytest.skip("../shared/data is not here: no ImageNet files to decode")
    for file in files:
        baseline = file.read_bytes()
        pixels = decode(baseline)
        assert np.array_equal(pixels, by_pillow(baseline)), file.name
        assert np.array_equal(pixels, decode(to_progressive(baseline))), file.name


MODES = ("libjpeg", "unsmoothed", "scaled")


def prefix(kind: str, group: int) -> bytes:
    return join_pieces(groups_of(kind)[:group])


def unsmoothed(jpeg: bytes, group: int) -> Pixels:
    header = read_progressive(jpeg)
    assert header is not None
    return decode(without_smoothing(jpeg, header, prefix_of(DEFAULT, len(header.tables), group)) or jpeg)


def whole(source: Source) -> Part:
    return source.part(0, 0, source.height_px, source.width_px)


@pytest.mark.parametrize("group", range(1, 11))
@pytest.mark.parametrize("kind", KINDS)
def test_libjpeg_and_unsmoothed_are_full_size(kind: str, group: int) -> None:
    jpeg = prefix(kind, group)
    for mode, pixels in (("libjpeg", decode(jpeg)), ("unsmoothed", unsmoothed(jpeg, group))):
        source = open_decoder(mode, "pcr")(jpeg, group, "it")
        part = whole(source)
        assert (source.height_px, source.width_px, part.denominator) == (*pixels.shape[:2], 1)
        assert np.array_equal(part.pixels, pixels)


@pytest.mark.parametrize("group", range(1, 11))
@pytest.mark.parametrize("kind", KINDS)
def test_scaled_has_the_pixels_that_the_scans_carry(kind: str, group: int) -> None:
    jpeg = prefix(kind, group)
    source = open_decoder("scaled", "pcr")(jpeg, group, "it")
    full = unsmoothed(jpeg, group)
    assert (source.height_px, source.width_px) == full.shape[:2]
    part = whole(source)
    denominator = 1 if kind in ("cmyk", "tiny") else {1: 8, 2: 2}.get(group, 1)
    assert part.denominator == denominator
    assert part.pixels.shape == (-(-full.shape[0] // denominator), -(-full.shape[1] // denominator), 3)
    if denominator == 1:
        assert np.array_equal(part.pixels, full)


@pytest.mark.parametrize("kind", ["444", "grey", "rgb"])
@pytest.mark.parametrize(("group", "block", "tolerance"), [(1, 8, 1), (2, 2, 8)])
def test_scaled_pixels_are_the_means_of_blocks(kind: str, group: int, block: int, tolerance: float) -> None:
    """At group 1 they are exact up to rounding, because scan 1 holds only the means of 8 x 8 pixels."""
    jpeg = prefix(kind, group)
    scaled = whole(open_decoder("scaled", "pcr")(jpeg, group, "it")).pixels.astype(float)
    full = unsmoothed(jpeg, group).astype(float)
    rows, columns = full.shape[0] // block, full.shape[1] // block
    means = full[: rows * block, : columns * block].reshape(rows, block, columns, block, 3).mean((1, 3))
    error = np.abs(scaled[:rows, :columns] - means)
    assert np.quantile(error, 0.99) <= tolerance
    assert error.mean() < 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["420", "grey", "cmyk"])
def test_baseline_records_are_decoded_whole_in_every_mode(kind: str, mode: str) -> None:
    """This holds even if the original file is progressive and its only group is group 1."""
    for jpeg in (KINDS[kind], to_progressive(KINDS[kind])):
        part = whole(open_decoder(mode, "baseline")(jpeg, 1, "it"))
        assert np.array_equal(part.pixels, decode(KINDS[kind]))


@pytest.mark.parametrize("size", [(7, 5), (15, 40), (40, 15), (16, 16), (17, 31), (64, 48)])
@pytest.mark.parametrize("group", [1, 2])
def test_small_images_are_scaled_from_16_pixels_on(size: tuple[int, int], group: int) -> None:
    jpeg = to_progressive(to_jpeg(PHOTO.resize(size), quality=80))
    jpeg = join_pieces(group_pieces(split_scans(jpeg))[:group])
    part = whole(open_decoder("scaled", "pcr")(jpeg, group, "it"))
    assert part.denominator == (1 if min(size) < 16 else {1: 8, 2: 2}[group])
    assert part.pixels.shape[:2] == (-(-size[1] // part.denominator), -(-size[0] // part.denominator))
    if part.denominator == 1:
        assert np.array_equal(part.pixels, unsmoothed(jpeg, group))


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None)  # the machine may be busy
@given(data=st.data())
def test_damage_is_refused_by_name_or_gives_pixels(mode: str, data: st.DataObject) -> None:
    """Images damaged before they were stored pass the checksum."""
    group = data.draw(st.integers(1, 9))
    jpeg = bytearray(prefix(data.draw(st.sampled_from(["420", "grey", "cmyk"])), group))
    jpeg[data.draw(st.integers(2, 400))] = data.draw(st.integers(0, 255))
    try:
        part = whole(open_decoder(mode, "pcr")(bytes(jpeg), group, "sample 7"))
    except RecordError as error:
        assert str(error).startswith("sample 7 cannot be decoded")
    else:
        assert part.pixels.dtype == np.uint8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("content", [b"", b"not a JPEG", prefix("420", 1)[:100], prefix("grey", 2)[:-40]])
def test_every_mode_refuses_by_name(mode: str, content: bytes) -> None:
    for encoding in ("pcr", "baseline"):
        with pytest.raises(RecordError, match=r"^sample 7 cannot be decoded"):
            whole(open_decoder(mode, encoding)(content, 1, "sample 7"))
