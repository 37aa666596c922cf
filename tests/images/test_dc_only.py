"""The first scan group by the library of our own: libjpeg-turbo's pixels, or none, whatever the bytes are."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from jpeg_photos import KINDS, PHOTO, groups_of, merge_tables, widen_tables

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import dc_only
from pcr_exp.images import decode as decoding
from pcr_exp.images.codec import Source
from pcr_exp.images.dc_only import DcDecoder, find_dc_decoder
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.decoded import PartlyDecodedImage
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.libturbojpeg import PartDecoder, find_part_decoder
from pcr_exp.images.prefixes import prefix_of
from pcr_exp.images.smoothing import read_progressive, without_smoothing
from pcr_exp.images.transcode import to_progressive
from pcr_exp.loading.transform import TrainTransform

SOURCE = Path(dc_only.__file__).with_suffix(".c")
CHECKED = Path(__file__).parent / "dc_only_checked.c"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
COMPILER = shutil.which("cc") or shutil.which("gcc")
COVERED = ["444", "422", "420", "grey", "shared table"]


def compiled(out: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    if COMPILER is None:
        pytest.skip("no C compiler is here: the library of dc_only.c is not tested")
    command = [COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", *words, "-o", out]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def dc(tmp_path_factory: pytest.TempPathFactory) -> DcDecoder:
    """Built of the source as it is, not of when the package was installed."""
    path = tmp_path_factory.mktemp("library") / "dc_only.so"
    done = compiled(path, "-shared", "-fPIC", SOURCE)
    assert done.returncode == 0, done.stderr
    return DcDecoder(str(path))


def turbo() -> PartDecoder:
    found = find_part_decoder()
    if found is None:
        pytest.skip("libturbojpeg 3 is not here: pixels of dc_only.c are not compared with its")
    return found


def first_group(jpeg: bytes) -> bytes:
    return join_pieces(group_pieces(split_scans(to_progressive(jpeg)))[:1])


def by_turbo(jpeg: bytes) -> np.ndarray:
    """All of it at 1/8, unsmoothed."""
    header = read_progressive(jpeg)
    assert header is not None
    changed = without_smoothing(jpeg, header, prefix_of(DEFAULT, len(header.tables), 1))
    assert changed is not None
    frame = turbo().read_frame(changed)
    return turbo().decode(changed, 8, 0, 0, -(-frame.height_px // 8), -(-frame.width_px // 8))


def by_dc(dc: DcDecoder, jpeg: bytes) -> np.ndarray:
    frame = dc.read_frame(jpeg)
    return dc.decode(jpeg, 8, 0, 0, -(-frame.height_px // 8), -(-frame.width_px // 8))


@pytest.mark.parametrize("kind", [*COVERED, "tiny"])
def test_pixels_are_those_of_libjpeg_turbo(dc: DcDecoder, kind: str) -> None:
    jpeg = groups_of(kind)[0] + b"\xff\xd9"
    assert np.array_equal(by_dc(dc, jpeg), by_turbo(jpeg))
    assert dc.read_frame(jpeg) == turbo().read_frame(jpeg)


@pytest.mark.parametrize("rewritten", [merge_tables, widen_tables])
def test_tables_may_be_written_otherwise(dc: DcDecoder, rewritten: object) -> None:
    jpeg = rewritten(groups_of("420")[0] + b"\xff\xd9")  # type: ignore[operator]
    assert np.array_equal(by_dc(dc, jpeg), by_turbo(jpeg))


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
    dc: DcDecoder,
    *,
    width: int,
    height: int,
    quality: int,
    subsampling: str,
    contrast: float,
    block_px: int,
    seed: int,
) -> None:
    """From flat to blocks of black and white, whose means leave 0..255 by what quantisers round."""
    drawn = np.random.default_rng(seed).normal(
        0, contrast, (-(-height // block_px), -(-width // block_px), 3)
    )
    pixels = np.clip(128 + 128 * drawn, 0, 255).astype(np.uint8)
    pixels = pixels.repeat(block_px, 0).repeat(block_px, 1)[:height, :width]
    colours = "Gray" if subsampling == "Gray" else "RGB"
    given = pixels[..., :1] if colours == "Gray" else pixels
    saved = simplejpeg.encode_jpeg(np.ascontiguousarray(given), quality, colours, subsampling)
    jpeg = first_group(saved)
    assert np.array_equal(by_dc(dc, jpeg), by_turbo(jpeg))


@given(data=st.data())
@pytest.mark.parametrize("kind", COVERED)
def test_every_rectangle_is_cut_from_the_whole(dc: DcDecoder, kind: str, data: st.DataObject) -> None:
    jpeg = groups_of(kind)[0] + b"\xff\xd9"
    whole = by_dc(dc, jpeg)
    height, width, _ = whole.shape
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    found = dc.decode(jpeg, 8, top, left, rows, columns)
    assert np.array_equal(found, whole[top : top + rows, left : left + columns])


@pytest.mark.parametrize("rectangle", [(-1, 0, 1, 1), (0, 0, 1, 26), (19, 0, 1, 1), (0, 2**31 - 1, 1, 1)])
def test_rectangles_outside_are_refused(dc: DcDecoder, rectangle: tuple[int, int, int, int]) -> None:
    jpeg = groups_of("420")[0] + b"\xff\xd9"
    with pytest.raises(ImageError, match="left to libjpeg"):
        dc.decode(jpeg, 8, *rectangle)


def decoded_by(monkeypatch: pytest.MonkeyPatch, found: DcDecoder | None, jpeg: bytes) -> Source:
    monkeypatch.setattr(decoding, "find_dc_decoder", lambda: found)
    return open_decoder("scaled", "pcr")(jpeg, 1, "sample 7")


@pytest.mark.parametrize("kind", [*COVERED, "rgb", "cmyk", "tiny"])
def test_records_show_the_same_with_it_and_without(
    dc: DcDecoder, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = groups_of(kind)[0] + b"\xff\xd9"
    with_it, without = (decoded_by(monkeypatch, found, jpeg) for found in (dc, None))
    used = isinstance(with_it, PartlyDecodedImage) and with_it._decoder is dc
    assert used == (kind in COVERED), "other colours, and less than 16 pixels, are libjpeg's"
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


FIRST = groups_of("420")[0] + b"\xff\xd9"
SCAN = split_scans(to_progressive(KINDS["420"]))[0]
LEFT_TO_LIBJPEG = {
    "no JPEG": b"no JPEG",
    "empty": b"",
    "baseline": KINDS["420"],
    "two groups": join_pieces(groups_of("420")[:2]),
    "RGB": groups_of("rgb")[0] + b"\xff\xd9",
    "CMYK": groups_of("cmyk")[0] + b"\xff\xd9",
    "a comment": FIRST[:2] + b"\xff\xfe\x00\x04hi" + FIRST[2:],
    "restarts": with_restarts(),
    "cut short": FIRST[:-40] + b"\xff\xd9",
    "without its end": FIRST[:-2],
    "bytes before the end": FIRST[:-2] + bytes(9) + b"\xff\xd9",
    "another JFIF": FIRST.replace(b"JFIF\x00\x01", b"JFIF\x00\x02"),
}


@pytest.mark.parametrize("what", LEFT_TO_LIBJPEG)
def test_what_it_is_not_for_is_left_to_libjpeg(
    dc: DcDecoder, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = LEFT_TO_LIBJPEG[what]
    with pytest.raises(ImageError, match="left to libjpeg"):
        by_dc(dc, jpeg)
    results = []
    for found in (dc, None):
        try:
            results.append(decoded_by(monkeypatch, found, jpeg).part(0, 0, 20, 20).pixels.tolist())
        except RecordError as error:
            results.append(str(error))
    assert results[0] == results[1]


@given(data=st.data())
@pytest.mark.parametrize("kind", ["420", "grey"])
def test_damaged_files_have_libjpegs_pixels_or_none(dc: DcDecoder, kind: str, data: st.DataObject) -> None:
    """It may refuse what libjpeg takes; it may not take what libjpeg warns of, or show it otherwise."""
    jpeg = bytearray(groups_of(kind)[0] + b"\xff\xd9")
    for _ in range(data.draw(st.integers(1, 3))):
        jpeg[data.draw(st.integers(0, len(jpeg) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del jpeg[data.draw(st.integers(0, len(jpeg) - 1)) :]
    damaged = bytes(jpeg)
    try:
        found = by_dc(dc, damaged)
    except ImageError:
        return
    assert np.array_equal(found, by_turbo(damaged))


def test_no_bytes_lead_it_outside_its_memory(tmp_path: Path) -> None:
    """Compiled with checks of every access, and given files that are damaged in every way."""
    program = tmp_path / "checked"
    checks = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    done = compiled(program, *checks, f"-I{SOURCE.parent}", CHECKED)
    if "san" in done.stderr:
        pytest.skip(f"this compiler cannot check accesses to memory: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    rng = np.random.default_rng(0)
    files = [groups_of(kind)[0] + b"\xff\xd9" for kind in COVERED]
    cases = list(files)
    for _ in range(2000):
        case = bytearray(files[rng.integers(len(files))])
        for _ in range(rng.integers(1, 6)):
            header = rng.random() < 0.7
            case[rng.integers(0, 330 if header else len(case))] = rng.choice([0, 1, 0xFF, rng.integers(256)])
        cases.append(bytes(case[: rng.integers(len(case))] if rng.random() < 0.2 else case))
    content = b"".join(len(case).to_bytes(4, "little") + case for case in cases)
    run = subprocess.run([program], input=content, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode(errors="replace")[-3000:]
    decoded, refused = map(int, run.stdout.split())
    assert decoded >= len(files) and refused > 500 and decoded + refused == len(cases)


def test_a_library_of_another_version_is_not_used(dc: DcDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dc_only, "VERSION", dc_only.VERSION + 1)
    with pytest.raises(AttributeError, match=r"is of version 1, wanted 2: install pcr-exp again"):
        DcDecoder(dc.path)
    monkeypatch.setattr(dc_only, "library_path", lambda: dc.path)
    assert find_dc_decoder.__wrapped__() is None


@pytest.mark.parametrize("path", [None, "/no/such.so", "libc.so.6"])
def test_one_that_is_not_there_is_not_missed(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dc_only, "library_path", lambda: path)
    assert find_dc_decoder.__wrapped__() is None


@pytest.mark.skipif(not SHARED.exists(), reason="real photographs are not in ../shared/data")
def test_real_photographs_look_the_same(dc: DcDecoder) -> None:
    files = sorted(SHARED.glob("imagenet_native_sample/*/*.JPEG"))[::20]
    for file in files:
        jpeg = first_group(file.read_bytes())
        assert np.array_equal(by_dc(dc, jpeg), by_turbo(jpeg)), file.name
    assert files
