"""Groups 1 and 2 by the library of our own: libjpeg-turbo's pixels, or none, whatever the bytes are."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from first_scans_oracle import (
    DENOMINATOR,
    SOURCE,
    by_turbo,
    compiled,
    prefix,
    prefix_of_kind,
    turbo,
    whole,
)
from hypothesis import given
from hypothesis import strategies as st
from jpeg_photos import KINDS, OTHERS, PHOTO, merge_tables, needs_jpegtran, widen_tables

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import decode as decoding
from pcr_exp.images import first_scans
from pcr_exp.images.codec import Source
from pcr_exp.images.decode import ProgressiveJpeg, open_decoder
from pcr_exp.images.decoded import PartlyDecodedImage
from pcr_exp.images.first_scans import FirstScansDecoder, find_first_scans_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.loading.transform import TrainTransform

CHECKED = Path(__file__).parent / "first_scans_checked.c"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
COVERED = [
    *((1, kind) for kind in ("444", "422", "420", "grey", "shared table")),
    *((2, kind) for kind in ("444", "420", "grey", "shared table")),
]
"""(scan group, kind of file): at group 2, chroma that is halved along one axis alone is interpolated."""
covered = pytest.mark.parametrize(("group", "kind"), COVERED)


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> FirstScansDecoder:
    """Built of the source as it is, not of when the package was installed."""
    path = tmp_path_factory.mktemp("library") / "first_scans.so"
    done = compiled(path, "-shared", "-fPIC", SOURCE)
    assert done.returncode == 0, done.stderr
    return FirstScansDecoder(str(path))


@covered
def test_pixels_are_those_of_libjpeg_turbo(ours: FirstScansDecoder, group: int, kind: str) -> None:
    jpeg = prefix_of_kind(kind, group)
    assert np.array_equal(whole(ours, jpeg, group), by_turbo(jpeg, group))
    assert ours.read_frame(jpeg) == turbo().read_frame(jpeg)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("rewritten", [merge_tables, widen_tables])
def test_tables_may_be_written_otherwise(
    ours: FirstScansDecoder, rewritten: Callable[[bytes], bytes], group: int
) -> None:
    jpeg = rewritten(prefix_of_kind("420", group))
    assert np.array_equal(whole(ours, jpeg, group), by_turbo(jpeg, group))


@pytest.mark.parametrize("group", [1, 2])
@given(
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["444", "422", "420", "440", "Gray"]),
    contrast=st.sampled_from([0.0, 0.2, 1.0, 50.0]),
    block_px=st.sampled_from([1, 3, 8, 16]),
    seed=st.integers(0, 2**16),
)
def test_whatever_is_shown(
    ours: FirstScansDecoder,
    group: int,
    *,
    width: int,
    height: int,
    quality: int,
    subsampling: str,
    contrast: float,
    block_px: int,
    seed: int,
) -> None:
    """From flat to black and white, which leave 0..255 by what quantisers round and what has not come."""
    shape = (-(-height // block_px), -(-width // block_px), 3)
    drawn = np.random.default_rng(seed).normal(0, contrast, shape)
    pixels = np.clip(128 + 128 * drawn, 0, 255).astype(np.uint8)
    pixels = pixels.repeat(block_px, 0).repeat(block_px, 1)[:height, :width]
    colours = "Gray" if subsampling == "Gray" else "RGB"
    shown = np.ascontiguousarray(pixels[..., :1] if colours == "Gray" else pixels)
    jpeg = prefix(simplejpeg.encode_jpeg(shown, quality, colours, subsampling), group)
    if group == 2 and subsampling in ("422", "440"):
        with pytest.raises(ImageError, match="left to libjpeg"):
            ours.read_frame(jpeg)
    else:
        assert np.array_equal(whole(ours, jpeg, group), by_turbo(jpeg, group))


@covered
@given(data=st.data())
def test_every_rectangle_is_cut_from_the_whole(
    ours: FirstScansDecoder, group: int, kind: str, data: st.DataObject
) -> None:
    jpeg = prefix_of_kind(kind, group)
    everything = whole(ours, jpeg, group)
    height, width, _ = everything.shape
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    found = ours.decode(jpeg, DENOMINATOR[group], top, left, rows, columns)
    assert np.array_equal(found, everything[top : top + rows, left : left + columns])


@pytest.mark.parametrize("rectangle", [(-1, 0, 1, 1), (0, 0, 1, 26), (19, 0, 1, 1), (0, 2**31 - 1, 1, 1)])
def test_rectangles_outside_are_refused(
    ours: FirstScansDecoder, rectangle: tuple[int, int, int, int]
) -> None:
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.decode(prefix_of_kind("420", 1), 8, *rectangle)


@pytest.mark.parametrize(("group", "denominator"), [(1, 2), (1, 1), (1, 4), (2, 8), (2, 4), (2, 1)])
def test_other_fractions_are_refused(ours: FirstScansDecoder, group: int, denominator: int) -> None:
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.decode(prefix_of_kind("420", group), denominator, 0, 0, 1, 1)


def decoded_by(
    monkeypatch: pytest.MonkeyPatch, found: FirstScansDecoder | None, jpeg: bytes, group: int
) -> Source:
    monkeypatch.setattr(decoding, "find_first_scans_decoder", lambda: found)
    return open_decoder("scaled", "pcr")(jpeg, group, "sample 7")


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kind", ["444", "422", "420", "grey", "shared table", "rgb", "cmyk", "tiny"])
def test_records_show_the_same_with_it_and_without(
    ours: FirstScansDecoder, kind: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = prefix_of_kind(kind, group)
    with_it, without = (decoded_by(monkeypatch, found, jpeg, group) for found in (ours, None))
    used = isinstance(with_it, PartlyDecodedImage) and with_it._decoder is ours
    assert used == ((group, kind) in COVERED), "other colours, and less than 16 pixels, are libjpeg's"
    transform = TrainTransform(48, AugmentConfig(crop_scale=[0.02, 1]))
    outs = [np.empty((48, 48, 3), dtype=np.uint8) for _ in range(2)]
    for drawn in np.random.default_rng(0).random((30, TrainTransform.num_draws)).tolist():
        transform(with_it, drawn, outs[0])
        transform(without, drawn, outs[1])
        assert np.array_equal(*outs)


def with_restarts() -> bytes:
    buffer = io.BytesIO()
    PHOTO.save(buffer, "JPEG", progressive=True, restart_marker_rows=1)
    return join_pieces(group_pieces(split_scans(buffer.getvalue()))[:1])


FIRST, SECOND = (prefix_of_kind("420", group) for group in (1, 2))
LEFT_TO_LIBJPEG = {
    "no JPEG": b"no JPEG",
    "empty": b"",
    "baseline": KINDS["420"],
    "three groups": prefix_of_kind("420", 3),
    "RGB": prefix_of_kind("rgb", 1),
    "CMYK": prefix_of_kind("cmyk", 1),
    "a comment": FIRST[:2] + b"\xff\xfe\x00\x04hi" + FIRST[2:],
    "restarts": with_restarts(),
    "cut short": FIRST[:-40] + b"\xff\xd9",
    "without its end": FIRST[:-2],
    "bytes before the end": FIRST[:-2] + bytes(9) + b"\xff\xd9",
    "second scan cut short": SECOND[:-300] + b"\xff\xd9",
    "bytes behind the second scan": SECOND[:-2] + bytes(9) + b"\xff\xd9",
    "second scan of 4:2:2": prefix_of_kind("422", 2),
    "another JFIF": FIRST.replace(b"JFIF\x00\x01", b"JFIF\x00\x02"),
}


def shown(
    monkeypatch: pytest.MonkeyPatch, found: FirstScansDecoder | None, jpeg: bytes, group: int
) -> bytes | str:
    try:
        return decoded_by(monkeypatch, found, jpeg, group).part(0, 0, 20, 20).pixels.tobytes()
    except RecordError as error:
        return str(error)


@pytest.mark.parametrize("what", LEFT_TO_LIBJPEG)
def test_what_it_is_not_for_is_left_to_libjpeg(
    ours: FirstScansDecoder, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_left_to_libjpeg(ours, LEFT_TO_LIBJPEG[what], monkeypatch)


@needs_jpegtran
def test_another_script_is_left_to_libjpeg(ours: FirstScansDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ProgressiveJpeg(OTHERS["two_step"])
    jpeg = join_pieces(other.split(other.encode(KINDS["420"]))[:2])
    assert_left_to_libjpeg(ours, jpeg, monkeypatch)


def assert_left_to_libjpeg(ours: FirstScansDecoder, jpeg: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for group, denominator in DENOMINATOR.items():
        with pytest.raises(ImageError, match="left to libjpeg"):
            ours.decode(jpeg, denominator, 0, 0, 10, 10)
        with_it, without = (shown(monkeypatch, found, jpeg, group) for found in (ours, None))
        assert with_it == without


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kind", ["420", "grey"])
@given(data=st.data())
def test_damaged_files_have_libjpegs_pixels_or_none(
    ours: FirstScansDecoder, kind: str, group: int, data: st.DataObject
) -> None:
    """It may refuse what libjpeg takes; it may not take what libjpeg warns of, or show it otherwise."""
    jpeg = bytearray(prefix_of_kind(kind, group))
    for _ in range(data.draw(st.integers(1, 3))):
        jpeg[data.draw(st.integers(0, len(jpeg) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del jpeg[data.draw(st.integers(0, len(jpeg) - 1)) :]
    damaged = bytes(jpeg)
    try:
        found = whole(ours, damaged, group)
    except ImageError:
        return
    assert np.array_equal(found, by_turbo(damaged, group))


def test_no_bytes_lead_it_outside_its_memory(tmp_path: Path) -> None:
    """Compiled with checks of every access, and given files that are damaged in every way."""
    program = tmp_path / "checked"
    checks = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    done = compiled(program, *checks, f"-I{SOURCE.parent}", CHECKED)
    if "san" in done.stderr:
        pytest.skip(f"this compiler cannot check accesses to memory: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    rng = np.random.default_rng(0)
    files = [prefix_of_kind(kind, group) for group, kind in COVERED]
    cases = list(files)
    for _ in range(2000):
        case = bytearray(files[rng.integers(len(files))])
        for _ in range(rng.integers(1, 6)):
            end = min(len(case), 330) if rng.random() < 0.5 else len(case)
            case[rng.integers(end)] = rng.choice([0, 1, 0xFF, rng.integers(256)])
        cases.append(bytes(case[: rng.integers(len(case))] if rng.random() < 0.2 else case))
    content = b"".join(len(case).to_bytes(4, "little") + case for case in cases)
    run = subprocess.run([program], input=content, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode(errors="replace")[-3000:]
    decoded, refused = map(int, run.stdout.split())
    assert decoded >= len(files) and refused > 500 and decoded + refused == len(cases)


def test_a_library_of_another_version_is_not_used(
    ours: FirstScansDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_scans, "VERSION", first_scans.VERSION + 1)
    with pytest.raises(AttributeError, match=r"is of version 1, wanted 2: install pcr-exp again"):
        FirstScansDecoder(ours.path)
    monkeypatch.setattr(first_scans, "library_path", lambda: ours.path)
    assert find_first_scans_decoder.__wrapped__() is None


@pytest.mark.parametrize("path", [None, "/no/such.so", "libc.so.6"])
def test_one_that_is_not_there_is_not_missed(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_scans, "library_path", lambda: path)
    assert find_first_scans_decoder.__wrapped__() is None


@pytest.mark.skipif(not SHARED.exists(), reason="real photographs are not in ../shared/data")
def test_real_photographs_look_the_same(ours: FirstScansDecoder) -> None:
    files = sorted(SHARED.glob("imagenet_native_sample/*/*.JPEG"))[::20]
    num_decoded = 0
    for file, group in product(files, DENOMINATOR):
        jpeg = prefix(file.read_bytes(), group)
        try:
            found = whole(ours, jpeg, group)
        except ImageError:
            continue
        assert np.array_equal(found, by_turbo(jpeg, group)), file.name
        num_decoded += 1
    assert num_decoded > 1.5 * len(files)
