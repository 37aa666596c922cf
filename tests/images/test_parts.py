"""Decoding only what a crop needs gives the same pixels as a full decode."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jpeg_photos import KINDS, PHOTO, groups_of, to_jpeg

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import decode as decoding
from pcr_exp.images.codec import Source
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.decoded import DecodedImage, PartlyDecodedImage
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.libturbojpeg import PartDecoder, find_part_decoder, library_paths
from pcr_exp.images.transcode import to_progressive
from pcr_exp.loading.transform import TrainTransform

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
SHAPES = {
    **{kind: KINDS[kind] for kind in ("444", "422", "420", "grey", "rgb", "shared table")},
    "odd": to_jpeg(PHOTO.crop((0, 0, 131, 93)), quality=75, subsampling=2),
    "narrow": to_jpeg(PHOTO.crop((20, 20, 37, 90)), quality=75, subsampling=2),
}


def decoder() -> PartDecoder:
    found = find_part_decoder()
    if found is None:
        pytest.skip("libturbojpeg 3 is not here: parts of images are not decoded, but whole images")
    return found


def in_whole(monkeypatch: pytest.MonkeyPatch, mode: str, encoding: str, jpeg: bytes, group: int) -> Source:
    with monkeypatch.context() as without:
        without.setattr(decoding, "find_part_decoder", lambda: None)
        without.setattr(decoding, "find_decoder", lambda: None)
        source = open_decoder(mode, encoding)(jpeg, group, "it")
    assert isinstance(source, DecodedImage)
    return source


def assert_same_crops(partly: Source, whole: Source, seed: int, count: int) -> None:
    transforms = [TrainTransform(48, AugmentConfig(crop_scale=[0.02, 1]), antialias=a) for a in (False, True)]
    outs = [np.empty((48, 48, 3), dtype=np.uint8) for _ in range(2)]
    for drawn in np.random.default_rng(seed).random((count, TrainTransform.num_draws)).tolist():
        for transform in transforms:
            transform(partly, drawn, outs[0])
            transform(whole, drawn, outs[1])
            assert np.array_equal(outs[0], outs[1])


@pytest.mark.parametrize("group", [0, 1, 2, 4, 5, 8, 10])
@pytest.mark.parametrize("mode", ["libjpeg", "unsmoothed", "scaled"])
@pytest.mark.parametrize("kind", SHAPES)
def test_crops_are_those_of_the_whole_image(
    kind: str, mode: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder()
    jpeg, encoding = SHAPES[kind], "baseline"
    if group > 0:
        jpeg, encoding = join_pieces(group_pieces(split_scans(to_progressive(jpeg)))[:group]), "pcr"
    partly = open_decoder(mode, encoding)(jpeg, max(group, 1), "it")
    assert_same_crops(partly, in_whole(monkeypatch, mode, encoding, jpeg, max(group, 1)), group, 20)


@given(data=st.data())
@pytest.mark.parametrize("denominator", [1, 2])
@pytest.mark.parametrize("kind", ["444", "422", "420", "grey"])
def test_every_rectangle_has_the_pixels_of_the_whole(
    kind: str, denominator: int, data: st.DataObject
) -> None:
    image = PartlyDecodedImage(KINDS[kind], decoder(), _never, denominator)
    height, width = image.height_px, image.width_px
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    part, everything = image.part(top, left, rows, columns), image.part(0, 0, height, width)
    y, x = (round(top / denominator - part.top), round(left / denominator - part.left))
    expected = everything.pixels[y : y + part.pixels.shape[0], x : x + part.pixels.shape[1]]
    assert expected.shape == part.pixels.shape
    assert (part.rows, part.columns) == (rows / denominator, columns / denominator)
    first, last = int(part.top), int(part.left)
    stop, end = -(-(part.top + part.rows) // 1), -(-(part.left + part.columns) // 1)
    used = np.s_[first : int(stop), last : int(end)]
    assert np.array_equal(part.pixels[used], expected[used])


def _never() -> np.ndarray:
    raise AssertionError("the part could have been decoded")


def test_little_is_decoded_for_a_small_part() -> None:
    part = PartlyDecodedImage(KINDS["420"], decoder(), _never).part(64, 64, 16, 16)
    assert part.pixels.shape[0] <= 16 + 8
    assert part.pixels.shape[1] <= 16 + 8 + 15


def test_images_it_does_not_know_are_refused_before_decoding() -> None:
    for jpeg in (KINDS["cmyk"], b"no JPEG"):
        with pytest.raises(ImageError):
            PartlyDecodedImage(jpeg, decoder(), _never)
    assert PartlyDecodedImage(KINDS["444"], decoder(), _never).height_px == 151, "errors leave no trace"


def test_rectangles_outside_and_damage_are_errors_of_the_library() -> None:
    found = decoder()
    found.read_frame(KINDS["420"])
    with pytest.raises(ImageError, match=r"[Cc]ropping region"):
        found.decode(KINDS["420"], 1, 0, 0, 10_000, 10)
    found.read_frame(KINDS["420"])
    with pytest.raises(ImageError, match="divisible"):
        found.decode(KINDS["420"], 1, 0, 3, 10, 10)
    cut = join_pieces([groups_of("420")[0][:-30]])
    found.read_frame(cut)
    with pytest.raises(ImageError, match=r"[Pp]remature"):
        found.decode(cut, 1, 0, 0, 10, 10)
    with pytest.raises(RecordError, match=r"^sample 7 cannot be decoded: .*[Pp]remature"):
        open_decoder("unsmoothed", "pcr")(cut, 1, "sample 7").part(0, 0, 151, 199)


def test_a_library_that_is_too_old_or_missing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from pcr_exp.images import libturbojpeg

    find = find_part_decoder.__wrapped__
    usable = [path for path in library_paths() if _opens(path)]
    monkeypatch.setattr(libturbojpeg, "library_paths", lambda: ["/no/such.so", "libc.so.6", *usable])
    assert [find().path] == usable[:1] if usable else find() is None
    monkeypatch.setattr(libturbojpeg, "library_paths", lambda: ["/no/such.so", "libc.so.6"])
    assert find() is None


def _opens(path: str) -> bool:
    try:
        PartDecoder(path)
    except (OSError, AttributeError):
        return False
    return True


@pytest.mark.slow
def test_imagenet_crops_are_those_of_the_whole_image(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder()
    files = sorted((SHARED / "imagenet_native_sample").glob("*/*.JPEG"))[::4]
    if not files:
        pytest.skip("../shared/data is not here: no ImageNet files to decode")
    for seed, file in enumerate(files):
        original = file.read_bytes()
        pieces = group_pieces(split_scans(to_progressive(original)))
        cases = [("libjpeg", "baseline", original, 1), ("libjpeg", "pcr", join_pieces(pieces), 10)]
        for group in (1, 2, 3, 5, 7):
            jpeg = join_pieces(pieces[:group])
            cases += [("unsmoothed", "pcr", jpeg, group), ("scaled", "pcr", jpeg, group)]
        for mode, encoding, jpeg, group in cases:
            partly = open_decoder(mode, encoding)(jpeg, group, file.name)
            assert_same_crops(partly, in_whole(monkeypatch, mode, encoding, jpeg, group), seed, 5)
