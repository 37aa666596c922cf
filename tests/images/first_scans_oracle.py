"""The library of the first scans built from its source, and libturbojpeg, which decodes the same files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from jpeg_photos import groups_of

from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.images import first_scans
from pcr_exp.images.first_scans import FirstScansDecoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.libturbojpeg import PartDecoder, find_part_decoder
from pcr_exp.images.prefixes import prefix_of
from pcr_exp.images.smoothing import read_progressive, without_smoothing
from pcr_exp.images.transcode import to_progressive

SOURCE = Path(first_scans.__file__).with_suffix(".c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
DENOMINATOR = {1: 8, 2: 2}
"""By scan group."""


def compiled(out: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    if COMPILER is None:
        pytest.skip("no C compiler is here: the library of first_scans.c is not tested")
    command = [COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", *words, "-o", out]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def turbo() -> PartDecoder:
    found = find_part_decoder()
    if found is None:
        pytest.skip("libturbojpeg 3 is not here: pixels of first_scans.c are not compared with its")
    return found


def prefix(jpeg: bytes, group: int) -> bytes:
    return join_pieces(group_pieces(split_scans(to_progressive(jpeg)))[:group])


def prefix_of_kind(kind: str, group: int) -> bytes:
    return join_pieces(groups_of(kind)[:group])


def whole(decoder: FirstScansDecoder | PartDecoder, jpeg: bytes, group: int) -> np.ndarray:
    d, frame = DENOMINATOR[group], decoder.read_frame(jpeg)
    return decoder.decode(jpeg, d, 0, 0, -(-frame.height_px // d), -(-frame.width_px // d))


def by_turbo(jpeg: bytes, group: int) -> np.ndarray:
    """All of it at its fraction, unsmoothed."""
    header = read_progressive(jpeg)
    assert header is not None
    changed = without_smoothing(jpeg, header, prefix_of(DEFAULT, len(header.tables), group))
    assert changed is not None
    return whole(turbo(), bytes(changed), group)
