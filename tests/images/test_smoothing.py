"""Without block smoothing, pixels equal those of libjpeg with smoothing off; only permitted bytes change."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jpeglib
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from jpeg_photos import KINDS, OTHERS, groups_of, merge_tables, needs_jpegtran, widen_tables

from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.errors import ImageError
from pcr_exp.images.decode import ProgressiveJpeg, decode
from pcr_exp.images.jpeg import Segment, group_pieces, join_pieces, segments, split_scans
from pcr_exp.images.smoothing import (
    Prefix,
    prefix_of,
    read_progressive,
    with_no_bits_missing,
    without_smoothing,
)
from pcr_exp.images.transcode import to_progressive

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
SOURCE = Path(__file__).parent / "decode_without_smoothing.c"
Oracle = Callable[[bytes], np.ndarray]


def prefix(kind: str, group: int) -> bytes:
    return join_pieces(groups_of(kind)[:group])


def switched_off(jpeg: bytes, group: int) -> bytes | None:
    header = read_progressive(jpeg)
    assert header is not None
    return without_smoothing(jpeg, header, prefix_at(group, len(header.tables)))


def prefix_at(group: int, num_components: int = 3) -> Prefix:
    return prefix_of(DEFAULT, num_components, group)


def entropy_data(jpeg: bytes, scan: Segment) -> bytes:
    """Return a scan without the byte that holds its bit levels (Ah and Al)."""
    levels = scan.payload + 1 + 2 * jpeg[scan.payload] + 2
    return jpeg[scan.start : levels] + jpeg[levels + 1 : scan.end]


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Function that returns libjpeg's RGB pixels with `do_block_smoothing = FALSE`."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here: pixels without smoothing are not compared with libjpeg's own")
    program = tmp_path_factory.mktemp("oracle") / "decode"
    built = subprocess.run(
        [compiler, "-o", program, SOURCE, "-ljpeg"], capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        pytest.skip(f"libjpeg's headers are not here (apt install libjpeg-dev): {built.stderr[:200]}")

    def decode_by_c(jpeg: bytes) -> np.ndarray:
        raw = subprocess.run([program], input=jpeg, capture_output=True, check=True).stdout
        header = read_progressive(jpeg)
        assert header is not None
        return np.frombuffer(raw, np.uint8).reshape(header.height_px, header.width_px, 3)

    return decode_by_c


@pytest.mark.parametrize("group", range(1, 11))
@pytest.mark.parametrize("kind", ["444", "422", "420", "grey", "rgb", "shared table", "tiny"])
def test_pixels_are_those_of_libjpeg_told_not_to_smooth(kind: str, group: int, oracle: Oracle) -> None:
    jpeg = prefix(kind, group)
    changed = switched_off(jpeg, group)
    num_groups = 6 if kind == "grey" else 10
    impossible = {"shared table": (3, 4), "rgb": range(3, 7)}.get(kind, ())
    assert (changed is None) == (group in impossible)
    assert (changed == jpeg) == (group >= num_groups)
    if changed is not None:
        assert np.array_equal(decode(changed), oracle(jpeg))
    if group < num_groups and kind != "tiny":
        assert not np.array_equal(decode(jpeg), oracle(jpeg)), "a picture on which smoothing shows"


@needs_jpegtran
@pytest.mark.parametrize("name", ["spectral", "two_step", "chroma_last"])
@pytest.mark.parametrize("kind", ["420", "grey", "shared table"])
def test_so_they_are_for_every_script(kind: str, name: str, oracle: Oracle) -> None:
    codec = ProgressiveJpeg(OTHERS[name])
    pieces = codec.split(codec.encode(KINDS[kind]))
    num_unsmoothed = 0
    for group in range(1, codec.num_groups + 1):
        jpeg = join_pieces(pieces[:group])
        header = read_progressive(jpeg)
        assert header is not None
        prefix = prefix_of(codec.script, len(header.tables), group)
        changed = without_smoothing(jpeg, header, prefix)
        if changed is not None:
            num_unsmoothed += 1
            assert np.array_equal(decode(changed), oracle(jpeg)), group
        assert prefix.is_smoothed or np.array_equal(decode(jpeg), oracle(jpeg)), group
    # Impossible if Cb is present, Cr is not, and they share a table; or if luma's bands differ in bits.
    num_impossible = 1
    assert num_unsmoothed >= (2 if kind == "shared table" else codec.num_groups - num_impossible)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("rewrite", [merge_tables, widen_tables])
def test_other_ways_to_write_the_tables_are_understood(
    rewrite: Callable[[bytes], bytes], group: int, oracle: Oracle
) -> None:
    jpeg = rewrite(prefix("420", group))
    assert jpeg != prefix("420", group)
    changed = switched_off(jpeg, group)
    assert changed != jpeg
    assert np.array_equal(decode(changed), decode(switched_off(prefix("420", group), group)))
    assert np.array_equal(decode(changed), oracle(jpeg))


@pytest.mark.parametrize("group", [1, 2])
def test_grey_pixels_are_the_inverse_dct_of_the_coefficients(group: int, tmp_path: Path) -> None:
    """The oracle takes only entropy decoding from libjpeg; scipy computes the transform."""
    jpeg = prefix("grey", group)
    path = tmp_path / "grey.jpg"
    path.write_bytes(jpeg)
    stored = jpeglib.read_dct(str(path))
    blocks = scipy.fft.idctn(stored.Y.astype(float) * stored.qt[0], axes=(2, 3), norm="ortho") + 128
    image = blocks.transpose(0, 2, 1, 3).reshape(8 * blocks.shape[0], 8 * blocks.shape[1])
    pixels = decode(switched_off(jpeg, group))
    height, width = pixels.shape[:2]
    error = np.abs(np.clip(image[:height, :width], 0, 255) - pixels[..., 0])
    assert error.max() <= 1
    smoothed = decode(jpeg)[..., 0]
    assert np.abs(np.clip(image[:height, :width], 0, 255) - smoothed).max() > 8


@pytest.mark.parametrize("kind", ["444", "420", "grey", "shared table", "rgb", "cmyk"])
@given(group=st.integers(1, 10))
def test_only_quantisers_and_levels_change(kind: str, group: int) -> None:
    """Either quantisers become zero, or tables and levels change; entropy-coded data never does."""
    jpeg = prefix(kind, group)
    changed = switched_off(jpeg, group)
    if changed is None:
        return
    if len(changed) != len(jpeg):
        assert [jpeg[s.start : s.end] for s in segments(jpeg) if s.code == 0xC4] == [
            changed[s.start : s.end] for s in segments(changed) if s.code == 0xC4
        ]
        assert [entropy_data(jpeg, s) for s in segments(jpeg) if s.code == 0xDA] == [
            entropy_data(changed, s) for s in segments(changed) if s.code == 0xDA
        ]
        return
    differs = [i for i, (a, b) in enumerate(zip(jpeg, changed, strict=True)) if a != b]
    if differs:
        first = jpeg.index(b"\xff\xdb") + 2 + 2 + 1  # libjpeg writes luma's table first
        assert differs == list(range(first + (1 if group == 1 else 6), first + 10))
        assert not any(changed[place] for place in differs)


@pytest.mark.parametrize("group", range(1, 11))
def test_images_of_four_components_stay_as_they_are(group: int) -> None:
    assert switched_off(prefix("cmyk", group), group) is None


def test_luma_without_a_table_is_left_to_the_decoder_to_refuse() -> None:
    jpeg = prefix("420", 1)
    start = jpeg.index(b"\xff\xdb")
    while jpeg[start : start + 2] == b"\xff\xdb":
        jpeg = jpeg[:start] + jpeg[start + 2 + int.from_bytes(jpeg[start + 2 : start + 4], "big") :]
    assert switched_off(jpeg, 1) is None
    assert with_no_bits_missing(jpeg) is None


def test_quantisers_of_16_bits_leave_no_room_for_levels() -> None:
    assert switched_off(widen_tables(prefix("420", 5)), 5) is None


@pytest.mark.parametrize("kind", ["420", "grey", "shared table"])
@pytest.mark.parametrize("group", [2, 6, 9])
def test_no_byte_of_a_damaged_header_breaks_the_restating(kind: str, group: int) -> None:
    """Tables, frame and scan headers that contradict each other are rewritten, left alone or refused."""
    jpeg = prefix(kind, group)
    places = [
        place
        for segment in segments(jpeg)
        if segment.code in (0xC2, 0xDA, 0xDB)
        for place in range(segment.start + 2, min(segment.end, segment.payload + 200))
    ]
    num_read = 0
    for place in places:
        for value in (0, 1, 7, 16, 64, 129, 243, 255):
            damaged = jpeg[:place] + bytes([value]) + jpeg[place + 1 :]
            try:
                header = read_progressive(damaged)
                at = prefix_at(group, 1 if kind == "grey" else 3)
                changed = without_smoothing(damaged, header, at) if header else None
            except (ImageError, IndexError):
                continue
            num_read += 1
            assert changed is None or changed[:2] == b"\xff\xd8"
    assert num_read > len(places)


def test_the_header_is_read_and_a_baseline_file_has_none() -> None:
    header = read_progressive(prefix("420", 1))
    assert header is not None
    assert (header.height_px, header.width_px, header.tables) == (151, 199, (0, 1, 1))
    assert read_progressive(KINDS["420"]) is None
    with pytest.raises(ImageError, match="not a JPEG"):
        read_progressive(b"no JPEG")
    with pytest.raises(ImageError, match="truncated"):
        read_progressive(prefix("420", 1)[:40])


@pytest.mark.slow
def test_imagenet_prefixes_have_libjpegs_unsmoothed_pixels(oracle: Oracle) -> None:
    files = sorted((SHARED / "imagenet_native_sample").glob("*/*.JPEG"))[::5]
    if not files:
        pytest.skip("../shared/data is not here: no ImageNet files to decode")
    num_changed = 0
    for file in files:
        pieces = group_pieces(split_scans(to_progressive(file.read_bytes())))
        for group in range(1, 10):
            jpeg = join_pieces(pieces[:group])
            changed = switched_off(jpeg, group)
            if changed is not None:
                num_changed += 1
                assert np.array_equal(decode(changed), oracle(jpeg)), (file.name, group)
    assert num_changed > 8 * len(files)
