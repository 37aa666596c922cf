"""Files split by any scan script keep their coefficients, and every prefix of them decodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import jpeglib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jpeg_photos import KINDS, OTHERS, needs_jpegtran
from records_pictures import BAD, CASES, pixels

from pcr_exp.config.scan_scripts import DEFAULT, JpegScan, ScanScript, check_scans
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images.codec import find_codec
from pcr_exp.images.decode import ProgressiveJpeg, decode, open_decoder
from pcr_exp.images.jpeg import join_pieces, read_header
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.resample import whole_image
from pcr_exp.images.smoothing import prefix_of
from pcr_exp.images.transcode import to_progressive

FEW = ("420", "grey", "cmyk", "restart_blocks", "odd_size")


def coefficients(path: Path, jpeg: bytes) -> list[np.ndarray]:
    """Quantised coefficients of each component, and the quantisers, as jpeglib reads them."""
    path.write_bytes(jpeg)
    read = jpeglib.read_dct(str(path))
    chroma = [read.Cb, read.Cr] if read.has_chrominance else []
    return [read.Y, *chroma, *([read.K] if read.has_black else []), read.qt]


def assert_same_coefficients(folder: Path, before: bytes, after: bytes) -> None:
    one, other = coefficients(folder / "before.jpg", before), coefficients(folder / "after.jpg", after)
    assert len(one) - 1 == read_header(before).num_components
    for expected, found in zip(one, other, strict=True):
        np.testing.assert_array_equal(expected, found)


@needs_jpegtran
@pytest.mark.parametrize(
    ("name", "case"),
    [("spectral", case) for case in CASES] + [(n, c) for n in ("two_step", "chroma_last") for c in FEW],
)
def test_quantised_coefficients_are_the_same(name: str, case: str, tmp_path: Path) -> None:
    codec = ProgressiveJpeg(OTHERS[name])
    encoded = codec.encode(CASES[case])
    assert_same_coefficients(tmp_path, CASES[case], encoded)
    pieces = codec.split(encoded)
    assert len(pieces) == codec.num_groups
    assert b"".join(codec.join(pieces)) == encoded
    np.testing.assert_array_equal(pixels(encoded), pixels(CASES[case]))
    num_components = read_header(encoded).num_components
    assert read_header(encoded).num_scans == len(codec.script.scans_of(num_components))


@st.composite
def scripts(draw: st.DrawFn) -> ScanScript:
    """DC, then each component's AC: luma's in one band or two, all with their last bits at once or later."""
    scans = [JpegScan((0, 1, 2), 0, 0, 0, draw(st.integers(0, 1)))]
    refining = [JpegScan((0, 1, 2), 0, 0, 1, 0)] * scans[0].low
    for component in draw(st.permutations(range(3))):
        low = draw(st.integers(0, 2 if component == 0 else 1))
        cut = draw(st.integers(1, 62)) if component == 0 else 63
        bands = [(1, cut), (cut + 1, 63)] if cut < 63 else [(1, 63)]
        scans += [JpegScan((component,), *band, 0, low) for band in bands]
        refining += [JpegScan((component,), 1, 63, bit, bit - 1) for bit in range(low, 0, -1)]
    script = ScanScript(tuple(scans + refining))
    check_scans("drawn", [*script.scans])
    return script


@needs_jpegtran
@given(script=scripts(), case=st.sampled_from(FEW))
@settings(max_examples=12)
def test_any_script_is_lossless_and_all_its_prefixes_decode(
    script: ScanScript, case: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    codec = find_codec(script.id)
    encoded = codec.encode(CASES[case], 10**6)
    assert_same_coefficients(tmp_path_factory.mktemp("jpeg"), CASES[case], encoded)
    pieces = codec.split(encoded)
    for mode in ("libjpeg", "unsmoothed", "scaled"):
        decoder = codec.open_decoder(mode, 10**6)
        for group in range(1, codec.num_groups + 1):
            image = whole_image(decoder(join_pieces(pieces[:group]), group, "it"))
        np.testing.assert_array_equal(image, decode(CASES[case]))


def test_for_libjpeg_s_script_the_derived_is_what_was_measured() -> None:
    """Scales are 1/8 at group 1, 1/2 at group 2; entries 6 to 9 are free while luma's AC 6-63 is absent."""
    for num_components, last_without_detail in ((1, 2), (3, 4)):
        prefixes = {group: prefix_of(DEFAULT, num_components, group) for group in range(1, 11)}
        denominators = {
            group: prefix.denominator for group, prefix in prefixes.items() if prefix.denominator > 1
        }
        assert denominators == {1: 8, 2: 2}
        tables = (0, 1, 1)[:num_components]
        entries = {g: prefix.absent(tables).get(0) for g, prefix in prefixes.items() if prefix.absent(tables)}
        wanted = dict.fromkeys(range(1, last_without_detail + 1), (6, 7, 8, 9)) | {1: tuple(range(1, 10))}
        assert entries == wanted
    smoothed = [group for group in range(1, 12) if prefix_of(DEFAULT, 3, group).is_smoothed]
    assert smoothed == list(range(1, 10))
    assert [group for group in range(1, 12) if prefix_of(DEFAULT, 1, group).is_smoothed] == list(range(1, 6))
    shared = [group for group in range(1, 11) if prefix_of(DEFAULT, 3, group).absent((0, 0, 0))]
    assert shared == [1, 2]


def test_scales_of_other_scripts() -> None:
    found = [prefix_of(OTHERS["spectral"], 3, group).denominator for group in range(1, 7)]
    assert found == [8, 4, 2, 1, 1, 1]
    assert [prefix_of(OTHERS["two_step"], 1, group).denominator for group in range(1, 7)] == [
        8,
        2,
        1,
        1,
        1,
        1,
    ]
    assert [prefix_of(OTHERS["spectral"], 3, group).is_smoothed for group in (4, 5, 6)] == [
        True,
        False,
        False,
    ]


@needs_jpegtran
def test_at_its_scale_a_prefix_shows_all_it_has() -> None:
    codec = ProgressiveJpeg(OTHERS["spectral"])
    pieces = codec.split(codec.encode(KINDS["444"]))
    for group in (2, 3):
        jpeg = join_pieces(pieces[:group])
        full, scaled = (
            whole_image(open_decoder(mode, "pcr", script=codec.script)(jpeg, group, "it"))
            for mode in ("unsmoothed", "scaled")
        )
        assert ms_ssim(decode(KINDS["444"]), scaled).value > ms_ssim(decode(KINDS["444"]), full).value - 0.03


@needs_jpegtran
@pytest.mark.parametrize("name", ["zero-byte", "cut_in_scan", "damaged_scan", "12-bit", "sampling_1x4"])
def test_bad_files_are_refused_with_the_reason(name: str) -> None:
    jpeg, reason = BAD[name]
    with pytest.raises(ImageError, match=reason):
        to_progressive(jpeg, script=OTHERS["spectral"])


def test_without_jpegtran_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(RecordError, match=r"apt install libjpeg-turbo-progs.*records\.scans=default"):
        ProgressiveJpeg(OTHERS["spectral"]).check_installed()
    ProgressiveJpeg().check_installed()


def test_what_writes_another_script_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "jpegtran"
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    with pytest.raises(RecordError, match=r"jpegtran wrote 1 scans for 3 components, wanted 6"):
        to_progressive(CASES["420"], script=OTHERS["spectral"])


def test_records_of_a_script_that_cannot_be_are_refused() -> None:
    for name in ("jpeg_012.0.0.0.0", "jpeg_nonsense"):
        with pytest.raises(RecordError, match="is unknown"):
            find_codec(name)
