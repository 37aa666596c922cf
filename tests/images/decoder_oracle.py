"""Build decoder.c from source, and the references it is compared with: libturbojpeg, libjpeg and jpeglib."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jpeglib
import numpy as np
import pytest

from pcr_exp.images import decoder
from pcr_exp.images.decoder import JpegDecoder
from pcr_exp.images.jpeg import EOI, split_scans
from pcr_exp.images.libturbojpeg import PartDecoder, find_part_decoder

SOURCE = Path(decoder.__file__).with_suffix(".c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
DENOMINATORS = (1, 2, 4, 8)


def compiled(out: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    if COMPILER is None:
        pytest.skip("no C compiler is here: the library of decoder.c is not tested")
    command = [COMPILER, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", *words, "-o", out]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def turbo() -> PartDecoder:
    found = find_part_decoder()
    if found is None:
        pytest.skip("libturbojpeg 3 is not here: pixels of decoder.c are not compared with its")
    return found


def prefixes(jpeg: bytes) -> list[bytes]:
    """Return files of the first scan, the first two scans, and so on."""
    pieces = split_scans(jpeg)
    return [b"".join(pieces[:count]) + EOI for count in range(1, len(pieces) + 1)]


def whole(by: JpegDecoder | PartDecoder, jpeg: bytes, denominator: int = 1) -> np.ndarray:
    frame = by.read_frame(jpeg)
    size = (-(-frame.height_px // denominator), -(-frame.width_px // denominator))
    return by.decode(jpeg, denominator, 0, 0, *size)


@functools.cache
def _program() -> Path:
    """Compile the program that decodes with libjpeg, with block smoothing switched off."""
    folder = Path(tempfile.mkdtemp(prefix="pcr-exp-oracle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = compiled(folder / "decode", Path(__file__).parent / "decode_without_smoothing.c", "-ljpeg")
    if done.returncode != 0:
        pytest.skip(f"libjpeg's headers are not here (apt install libjpeg-dev): {done.stderr[:200]}")
    return folder / "decode"


def by_libjpeg(jpeg: bytes, shape: tuple[int, ...], denominator: int = 1) -> np.ndarray | None:
    """Return RGB pixels without smoothing, or None if libjpeg warns or fails."""
    done = subprocess.run([_program(), str(denominator)], input=jpeg, capture_output=True, check=False)
    return np.frombuffer(done.stdout, np.uint8).reshape(shape) if done.returncode == 0 else None


def same_pixels(by: JpegDecoder, jpeg: bytes, denominators: Sequence[int] = DENOMINATORS) -> bool:
    """Compare with libjpeg's pixels at every size."""
    for denominator in denominators:
        found = whole(by, jpeg, denominator)
        wanted = by_libjpeg(jpeg, found.shape, denominator)
        if wanted is None or not np.array_equal(found, wanted):
            return False
    return True


def coefficients(jpeg: bytes) -> list[np.ndarray]:
    """int16 [rows, columns, 8, 8] of every component, by libjpeg."""
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        file.write(jpeg)
        file.flush()
        found = jpeglib.read_dct(file.name)
    return [array for array in (found.Y, found.Cb, found.Cr) if array is not None]


def same_coefficients(by: JpegDecoder, jpeg: bytes) -> bool:
    """Compare the blocks that hold pixels; libjpeg also returns blocks that pad MCUs."""
    found, wanted = by.read_coefficients(jpeg), coefficients(jpeg)
    return len(found) == len(wanted) and all(
        np.array_equal(a, b[: a.shape[0], : a.shape[1]]) for a, b in zip(found, wanted, strict=True)
    )
