"""The pixel stage in C equals libjpeg-turbo's to the bit, on every code path that this machine has."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

import jpeglib
import numpy as np
import pytest
import simplejpeg
from decoder_oracle import SOURCE, compiled, turbo
from decoder_pixels_oracle import Blocks, blocks_of, shown, to_jpeg
from hypothesis import given
from hypothesis import strategies as st
from jpeg_photos import PHOTO

HERE = Path(__file__).parent
INCLUDED = f"-I{SOURCE.parent}"
PATHS = ("plain", "neon") if platform.machine() in ("aarch64", "arm64") else ("plain", "sse41", "avx2")
SAMPLINGS = {"444": (1, 1), "422": (2, 1), "440": (1, 2), "420": (2, 2), "Gray": None}
SIZES = (8, 4, 2, 1)


@pytest.fixture(scope="session")
def library_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "pixels.so"
    done = compiled(path, "-shared", "-fPIC", INCLUDED, HERE / "decoder_pixels_exported.c")
    assert done.returncode == 0, done.stderr
    return path


def by_path(library_file: Path, path: str) -> ctypes.CDLL:
    """Load a copy of the library that uses this code path; skip if this machine lacks it."""
    copy = library_file.with_name(f"{path}.so")
    if not copy.exists():
        shutil.copy(library_file, copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCR_EXP_SIMD", path)
        library = ctypes.CDLL(str(copy))
        library.pcr_decoder_paths.restype = ctypes.c_char_p
        if not library.pcr_decoder_paths().startswith(path.encode()):
            pytest.skip(f"this machine has no {path}")
    return library


@pytest.fixture(scope="session", params=PATHS)
def library(request: pytest.FixtureRequest, library_file: Path) -> ctypes.CDLL:
    return by_path(library_file, request.param)


def by_turbo(jpeg: bytes, height: int, width: int, size: int) -> np.ndarray:
    decoder = turbo()
    decoder.read_frame(jpeg)
    return decoder.decode(jpeg, 8 // size, 0, 0, -(-height * size // 8), -(-width * size // 8))


def random_blocks(rng: np.random.Generator, rows: int, columns: int, bits: float) -> np.ndarray:
    """Few or many coefficients per block, in its low-frequency corner, of up to about 2 ** bits."""
    shape = (rows, columns, 1)
    values = rng.normal(0, 0.5, (rows, columns, 64)) * 2.0 ** rng.uniform(0, bits, shape)
    row, column = np.divmod(np.arange(64), 8)
    kept = rng.random(values.shape) < rng.choice([0.02, 0.1, 0.5, 1], shape)
    kept &= (row < rng.integers(1, 9, shape)) & (column < rng.integers(1, 9, shape))
    values = np.clip(values * (kept | (row + column == 0)), -32767, 32767)
    values[..., 0] = np.clip(values[..., 0], -16383, 16383)
    return values.astype(np.int16)


@st.composite
def images(draw: st.DrawFn) -> tuple[list[Blocks], int, int]:
    """Planes, height and width of any image that a file can hold, however unlike a photograph."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sampling = draw(st.sampled_from(list(SAMPLINGS.values())))
    height, width = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    bits = draw(st.sampled_from([5.0, 10.0, 15.0]))
    largest = draw(st.sampled_from([2, 40, 256, 65536]))
    h, v = sampling or (1, 1)
    rows, columns = -(-height // (8 * v)), -(-width // (8 * h))
    planes = [Blocks(random_blocks(rng, rows * v, columns * h, bits), rng.integers(1, largest, 64), h, v)]
    for _ in range(2 if sampling else 0):
        planes.append(Blocks(random_blocks(rng, rows, columns, bits), rng.integers(1, largest, 64)))
    return planes, height, width


@pytest.mark.parametrize("size", SIZES)
@given(image=images())
def test_pixels_are_those_of_libjpeg_turbo(
    library: ctypes.CDLL, size: int, image: tuple[list[Blocks], int, int]
) -> None:
    """This includes 16-bit quantisers and coefficients, which overflow everywhere."""
    planes, height, width = image
    expected = by_turbo(to_jpeg(planes, width, height), height, width, size)
    assert np.array_equal(shown(library, planes, width, height, size), expected)


@given(image=images(), size=st.sampled_from(SIZES), data=st.data())
def test_every_rectangle_is_cut_from_the_whole(
    library: ctypes.CDLL, image: tuple[list[Blocks], int, int], size: int, data: st.DataObject
) -> None:
    planes, height, width = image
    whole = shown(library, planes, width, height, size)
    bottom, right = (data.draw(st.integers(1, side)) for side in whole.shape[:2])
    top, left = data.draw(st.integers(0, bottom - 1)), data.draw(st.integers(0, right - 1))
    found = shown(library, planes, width, height, size, (top, left, bottom, right))
    assert np.array_equal(found, whole[top:bottom, left:right])


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("quality", [30, 85, 99])
def test_photographs(library: ctypes.CDLL, sampling: str, quality: int, tmp_path: Path) -> None:
    pixels = np.asarray(PHOTO.convert("RGB"))
    is_grey = sampling == "Gray"
    pixels = np.ascontiguousarray(pixels[..., :1] if is_grey else pixels)
    jpeg = simplejpeg.encode_jpeg(pixels, quality, "Gray" if is_grey else "RGB", sampling)
    (tmp_path / "photo.jpg").write_bytes(jpeg)
    file = jpeglib.read_dct(str(tmp_path / "photo.jpg"))
    height, width = pixels.shape[:2]
    h, v = SAMPLINGS[sampling] or (1, 1)
    mcus = -(-height // (8 * v)), -(-width // (8 * h))
    planes = [blocks_of(file.Y, file.qt[0], h, v, mcus)]
    if not is_grey:
        planes += [blocks_of(plane, file.qt[1], 1, 1, mcus) for plane in (file.Cb, file.Cr)]
    for size in SIZES:
        expected = by_turbo(jpeg, height, width, size)
        assert np.array_equal(shown(library, planes, width, height, size), expected)


def run_checked(command: list[str | Path], path: str, num_rounds: int) -> None:
    environment = os.environ | {"PCR_EXP_SIMD": path, "ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run(
        [*command, str(num_rounds), "1"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.partition(",")[0] != path:
        pytest.skip(f"this machine has no {path}")


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checked") / "checked"
    sanitizers = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = compiled(path, *sanitizers, INCLUDED, HERE / "decoder_pixels_checked.c")
    if "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("path", PATHS)
def test_random_blocks_and_rows_within_their_buffers(checked: Path, path: str) -> None:
    """Compares every code path with plain C, on all 2^24 colours too, under AddressSanitizer and UBSan."""
    run_checked([checked], path, 5_000)


@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64")),
    reason="wants Debian's gcc-aarch64-linux-gnu and qemu-user",
)
def test_random_blocks_on_arm64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder_oracle.COMPILER", "aarch64-linux-gnu-gcc")
    done = compiled(tmp_path / "checked", "-static", INCLUDED, HERE / "decoder_pixels_checked.c")
    assert done.returncode == 0, done.stderr
    run_checked(["qemu-aarch64", tmp_path / "checked"], "neon", 5_000)
