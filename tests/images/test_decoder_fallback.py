"""With our JPEG decoder and without it, records and single images look the same."""

from __future__ import annotations

import numpy as np
import pytest
from decoder_oracle import turbo, whole
from jpeg_photos import COVERED, KINDS, groups_of, restarts

from pcr_exp import images
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import decode as decoding
from pcr_exp.images import decode_jpeg
from pcr_exp.images import decoder as own
from pcr_exp.images.codec import Source
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.decoded import PartlyDecodedImage
from pcr_exp.images.decoder import JpegDecoder, find_decoder
from pcr_exp.images.jpeg import EOI, check_frame, join_pieces
from pcr_exp.loading.transform import TrainTransform


def decoded_by(
    monkeypatch: pytest.MonkeyPatch, found: JpegDecoder | None, jpeg: bytes, group: int, mode: str = "scaled"
) -> Source:
    monkeypatch.setattr(decoding, "find_decoder", lambda: found)
    return open_decoder(mode, "baseline" if group == 0 else "pcr")(jpeg, group, "sample 7")


@pytest.mark.parametrize("group", range(11))
@pytest.mark.parametrize("kind", ["444", "422", "420", "grey", "shared table", "rgb", "cmyk", "tiny"])
def test_records_show_the_same_with_it_and_without(
    ours: JpegDecoder, kind: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = join_pieces(groups_of(kind)[:group]) if group else KINDS[kind]
    for mode in ("scaled", "unsmoothed"):
        with_it, without = (decoded_by(monkeypatch, found, jpeg, group, mode) for found in (ours, None))
        used = isinstance(with_it, PartlyDecodedImage) and with_it._decoder.path == ours.path
        smoothed = kind == "shared table" and group in (3, 4)
        assert used == (kind in COVERED and not smoothed), (
            "other colours, and what libjpeg smooths, are libjpeg's"
        )
        transform = TrainTransform(48, AugmentConfig(crop_scale=[0.02, 1]))
        outs = [np.empty((48, 48, 3), dtype=np.uint8) for _ in range(2)]
        for draws in np.random.default_rng(0).random((30, TrainTransform.num_draws)).tolist():
            transform(with_it, draws, outs[0])
            transform(without, draws, outs[1])
            assert np.array_equal(*outs)


@pytest.mark.parametrize("group", [0, 1, 5, 6, 9, 10])
@pytest.mark.parametrize("kind", ["444", "420", "grey", "rgb", "cmyk", "tiny"])
def test_whole_images_look_the_same_with_it_and_without(
    ours: JpegDecoder, kind: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `quality` and single images, libjpeg smooths incomplete files; our decoder takes complete ones."""
    jpeg = join_pieces(groups_of(kind)[:group]) if group else KINDS[kind]
    wanted = decoding._decode(jpeg, "it", check_frame(jpeg, MAX_PIXELS))
    left = []
    monkeypatch.setattr(decoding, "_decode", lambda *given: left.append(given) or wanted)
    monkeypatch.setattr(decoding, "find_decoder", lambda: ours)
    assert np.array_equal(decoding.decode(jpeg), wanted)
    is_complete = group in (0, 10) or (kind == "grey" and group >= 6)  # grey files have six scans
    assert bool(left) == (kind not in COVERED or not is_complete)
    rectangle = decode_jpeg(jpeg, (0, 0, 2, 1), smoothing=True)
    assert np.array_equal(rectangle, wanted[:2, :1])


@pytest.mark.parametrize("group", [1, 7, 10])
def test_progressive_files_in_baseline_records_are_decoded_in_parts_if_nothing_is_smoothed(
    ours: JpegDecoder, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = join_pieces(groups_of("420")[:group])
    with_it, without = (decoded_by(monkeypatch, found, jpeg, 0) for found in (ours, None))
    parts = [image.part(64, 32, 20, 30) for image in (with_it, without)]
    assert (parts[0].pixels.shape[0] < 151) == (group == 10)
    found, wanted = (
        part.pixels[int(part.top) :, int(part.left) :][: int(part.rows), : int(part.columns)]
        for part in parts
    )
    assert np.array_equal(found, wanted)


FIRST, SECOND = (join_pieces(groups_of("420")[:group]) for group in (1, 2))
LEFT_TO_LIBJPEG = {
    "no JPEG": b"no JPEG",
    "empty": b"",
    "one byte": b"\xff",
    "RGB": KINDS["rgb"],
    "CMYK": KINDS["cmyk"],
    "cut short": FIRST[:-40] + EOI,
    "without its end": FIRST[:-2],
    "bytes before the end": FIRST[:-2] + bytes(9) + EOI,
    "second scan cut short": SECOND[:-300] + EOI,
    "bytes behind the second scan": SECOND[:-2] + bytes(9) + EOI,
    "sequential, cut short": KINDS["420"][:-40] + EOI,
    "a scan again": FIRST[:-2] + FIRST[FIRST.index(b"\xff\xda") :],
    "another JFIF": FIRST.replace(b"JFIF\x00\x01", b"JFIF\x00\x03"),
    "a restart that is missing": restarts(rows=1, progressive=False).replace(b"\xff\xd1", b"", 1),
    "restarts in another order": restarts(rows=1, progressive=False).replace(b"\xff\xd1", b"\xff\xd2", 1),
    "a restart where none is due": KINDS["420"][:-2] + b"\xff\xd0" + EOI,
}


def shown(monkeypatch: pytest.MonkeyPatch, found: JpegDecoder | None, jpeg: bytes, group: int) -> bytes | str:
    try:
        image = decoded_by(monkeypatch, found, jpeg, group)
        return image.part(0, 0, image.height_px, image.width_px).pixels.tobytes()
    except RecordError as error:
        return str(error)


@pytest.mark.parametrize("what", LEFT_TO_LIBJPEG)
def test_what_it_is_not_for_is_left_to_libjpeg(
    ours: JpegDecoder, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = LEFT_TO_LIBJPEG[what]
    with pytest.raises(ImageError, match="left to libjpeg"):
        whole(ours, jpeg)
    for group in (0, 2, 10):
        with_it, without = (shown(monkeypatch, found, jpeg, group) for found in (ours, None))
        assert with_it == without


def test_plain_pixels_are_left_to_libjpeg_unless_asked_for(
    each: JpegDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "library_path", lambda: each.path)
    monkeypatch.delenv("PCR_EXP_SIMD", raising=False)
    assert (find_decoder.__wrapped__() is None) == each.paths.startswith("plain")
    monkeypatch.setenv("PCR_EXP_SIMD", "plain")
    assert find_decoder.__wrapped__() is not None


def test_a_library_of_another_version_is_not_used(ours: JpegDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "VERSION", own.VERSION + 1)
    with pytest.raises(AttributeError, match=r"is of version 2, wanted 3: install pcr-exp again"):
        JpegDecoder(ours.path)
    monkeypatch.setattr(own, "library_path", lambda: ours.path)
    assert find_decoder.__wrapped__() is None


@pytest.mark.parametrize("path", [None, "/no/such.so", "libc.so.6"])
def test_one_that_is_not_there_is_not_missed(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "library_path", lambda: path)
    assert find_decoder.__wrapped__() is None


@pytest.mark.parametrize("found", [True, False])
def test_decode_jpeg_is_for_everyone(
    ours: JpegDecoder, monkeypatch: pytest.MonkeyPatch, *, found: bool
) -> None:
    monkeypatch.setattr(decoding, "find_decoder", lambda: ours if found else None)
    for kind in ("420", "grey", "cmyk", "rgb"):
        assert np.array_equal(decode_jpeg(KINDS[kind]), decoding.decode(KINDS[kind]))
    everything = decode_jpeg(KINDS["420"], scale=0.5)
    assert everything.shape == (76, 100, 3)
    assert np.array_equal(everything, whole(turbo(), KINDS["420"], 2))
    assert np.array_equal(decode_jpeg(KINDS["420"], (5, 7, 20, 30), 1 / 2), everything[5:25, 7:37])
    assert decode_jpeg(KINDS["cmyk"], scale=1 / 4).shape == (38, 50, 3)
    with pytest.raises(ValueError, match=r"scale=0\.3: wanted 1, 1/2, 1/4 or 1/8"):
        decode_jpeg(KINDS["420"], scale=0.3)
    with pytest.raises(ValueError, match=r"rectangle: \(0, 0, 152, 1\) is not within the 151 rows"):
        decode_jpeg(KINDS["420"], (0, 0, 152, 1))
    with pytest.raises(RecordError, match="the image cannot be decoded"):
        decode_jpeg(KINDS["420"][:-40] + EOI)
    with pytest.raises(RecordError, match="max_pixels"):
        decode_jpeg(KINDS["420"], max_pixels=100)
    with pytest.raises(AttributeError, match="no attribute 'decode_png'"):
        images.decode_png  # noqa: B018
