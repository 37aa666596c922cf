"""Each of three transcoders keeps the coefficients and changes only the scans, or reports a reason."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jpeglib
import numpy as np
import pytest
import simplejpeg
from records_pictures import BAD, CASES, PLAIN, pixels, subsampled

from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import transcode
from pcr_exp.images.jpeg import group_pieces, join_pieces, read_header, split_scans
from pcr_exp.images.libturbojpeg import LibTurboJpeg, library_paths
from pcr_exp.images.transcode import Jpegtran, find_transcoder, to_progressive

JPEGTRAN = shutil.which("jpegtran")


@pytest.fixture(autouse=True)
def _look_afresh() -> Iterator[None]:
    find_transcoder.cache_clear()
    yield
    find_transcoder.cache_clear()


def hide_system_library(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ctypes.CDLL

    def refuse(name: str, *args: Any, **kwargs: Any) -> ctypes.CDLL:
        if name == "libturbojpeg.so.0":
            raise OSError(f"{name}: hidden by the test")
        return load(name, *args, **kwargs)

    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    monkeypatch.setattr(ctypes, "CDLL", refuse)


def hide_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)


def hide_jpegtran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)


def use(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all transcoders but one; skip if this machine lacks it."""
    hide = {"system": hide_system_library, "wheel": hide_wheel, "jpegtran": hide_jpegtran}
    for other in hide.keys() - {way}:
        hide[other](monkeypatch)
    try:
        transcoder = find_transcoder()
    except RecordError:
        pytest.skip(f"this machine has no libjpeg-turbo by way of {way}")
    marks = {"system": "libturbojpeg.so.0", "wheel": "turbojpeg.libs", "jpegtran": "jpegtran"}
    assert marks[way] in transcoder.path


WAYS = ("system", "wheel", "jpegtran")


def coefficients(path: Path, jpeg: bytes) -> list[np.ndarray]:
    path.write_bytes(jpeg)
    read = jpeglib.read_dct(str(path))
    planes = (
        [read.Y] + ([read.Cb, read.Cr] if read.has_chrominance else []) + ([read.K] if read.has_black else [])
    )
    return [*planes, read.qt]


@pytest.mark.parametrize("name", CASES)
def test_quantised_coefficients_are_the_same(name: str, tmp_path: Path) -> None:
    before = coefficients(tmp_path / "before.jpg", CASES[name])
    after = coefficients(tmp_path / "after.jpg", to_progressive(CASES[name]))
    assert len(before) - 1 == read_header(CASES[name]).num_components
    for one, other in zip(before, after, strict=True):
        assert one.any()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_all_groups_decode_to_the_pixels_of_the_source(name: str) -> None:
    groups = group_pieces(split_scans(to_progressive(CASES[name])))
    whole = join_pieces(groups)
    np.testing.assert_array_equal(pixels(whole), pixels(CASES[name]))
    if name != "cmyk":
        np.testing.assert_array_equal(
            simplejpeg.decode_jpeg(whole, strict=True), simplejpeg.decode_jpeg(CASES[name], strict=True)
        )


@pytest.mark.parametrize("name", [name for name in CASES if name != "one_pixel"])
def test_every_prefix_decodes_and_more_groups_come_closer(name: str) -> None:
    groups = group_pieces(split_scans(to_progressive(CASES[name])))
    reference = pixels(CASES[name]).astype(float)
    errors = []
    for group in range(1, 11):
        jpeg = join_pieces(groups[:group])
        if name != "cmyk":
            assert simplejpeg.decode_jpeg(jpeg, strict=True).shape[:2] == reference.shape[:2]
        errors.append(np.mean((pixels(jpeg) - reference) ** 2))
    assert errors[9] == 0
    assert errors[0] > errors[4] > 0 or read_header(CASES[name]).num_components == 4
    assert errors[0] > errors[9]


@pytest.mark.parametrize("name", CASES)
def test_number_of_scans_is_the_default_script_s(name: str) -> None:
    wanted = {"grey": 6, "rgb": 14, "cmyk": 18}.get(name, 10)
    header = read_header(to_progressive(CASES[name]))
    assert header.is_progressive
    assert header.num_scans == wanted


@pytest.mark.skipif(JPEGTRAN is None, reason="the oracle, jpegtran, is not installed")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_bytes_of_jpegtran(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert JPEGTRAN is not None
    oracle = Jpegtran(JPEGTRAN)
    use(way, monkeypatch)
    for jpeg in CASES.values():
        assert to_progressive(jpeg) == oracle(jpeg)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_the_reason(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(way, monkeypatch)
    jpeg, reason = BAD[name]
    with pytest.raises(ImageError) as raised:
        to_progressive(jpeg)
    assert reason in str(raised.value)


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_file_does_not_spoil_the_next(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(way, monkeypatch)
    wanted = to_progressive(PLAIN)
    for name in ("cut_in_scan", "damaged_scan"):
        with pytest.raises(ImageError):
            to_progressive(BAD[name][0])
        assert to_progressive(PLAIN) == wanted


def test_bytes_after_the_image_are_left_out() -> None:
    assert to_progressive(PLAIN + b"a second picture") == to_progressive(PLAIN)


def test_the_tallest_subsampling_that_decoders_know_is_stored() -> None:
    np.testing.assert_array_equal(pixels(to_progressive(subsampled(2))), pixels(subsampled(2)))


def test_threads_transcode_side_by_side() -> None:
    jpegs = list(CASES.values()) * 3
    wanted = [to_progressive(jpeg) for jpeg in jpegs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(to_progressive, jpegs)) == wanted


def test_without_any_libjpeg_turbo_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_system_library(monkeypatch)
    hide_wheel(monkeypatch)
    hide_jpegtran(monkeypatch)
    with pytest.raises(RecordError, match=r"pip install turbojpeg.*apt install libturbojpeg0"):
        to_progressive(PLAIN)


def test_a_library_that_cannot_be_used_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "libturbojpeg.so.0"
    broken.write_bytes(b"not a library")
    usable = next(path for path in library_paths() if _loads(path))
    libc = ctypes.util.find_library("c") or "libc.so.6"  # loads, but lacks the functions
    monkeypatch.setattr(transcode, "library_paths", lambda: iter([str(broken), libc, usable]))
    assert find_transcoder().path == usable


def _loads(path: str) -> bool:
    try:
        LibTurboJpeg(path)
    except OSError:
        return False
    return True


def test_another_scan_script_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        path = "/opt/mozjpeg/lib/libturbojpeg.so"

        def __call__(self, jpeg: bytes) -> bytes:
            return jpeg

    monkeypatch.setattr(transcode, "find_transcoder", Other)
    with pytest.raises(RecordError, match=r"/opt/mozjpeg.* wrote 1 scans for 3 components, wanted 10 or 14"):
        to_progressive(PLAIN)


def test_a_handle_that_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    library = LibTurboJpeg(next(path for path in library_paths() if _loads(path)))
    monkeypatch.setattr(library._handles, "_make", lambda: None)
    with pytest.raises(MemoryError, match="could not make a handle"):
        library(PLAIN)


def test_jpegtran_that_fails_without_a_word(tmp_path: Path) -> None:
    program = tmp_path / "jpegtran"
    program.write_text("#!/bin/sh\ncat > /dev/null\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(ImageError, match="jpegtran ended with status 3"):
        Jpegtran(str(program))(PLAIN)


def test_jpegtran_s_warnings_are_errors(tmp_path: Path) -> None:
    program = tmp_path / "jpegtran"
    program.write_text("#!/bin/sh\ncat\necho 'Corrupt JPEG data: 3 extraneous bytes' >&2\n")
    program.chmod(0o755)
    with pytest.raises(ImageError, match=r"^Corrupt JPEG data: 3 extraneous bytes$"):
        Jpegtran(str(program))(PLAIN)
