"""Bytes, similarity and decoding time of images split by a scan script, and the cost of writing one."""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from experiments.results.study import Row, by_turns, in_turns
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.scan_scripts import DEFAULT, ScanScript
from pcr_exp.images.codec import Decoder, Pixels
from pcr_exp.images.decode import ProgressiveJpeg, decode, open_decoder
from pcr_exp.images.jpeg import join_pieces, read_frame
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.resample import resample, whole_image
from pcr_exp.images.smoothing import prefix_of
from pcr_exp.images.transcode import Jpegtran, find_transcoder
from pcr_exp.loading.transform import TrainTransform, random_crop
from pcr_exp.measuring.quality import spread_evenly
from pcr_exp.system.machine import own_cpu_s

MODE = "scaled"
"""`loader.decode`: the default in training."""

CROP_PX = 224

Case = Callable[[int], object]
"""Processes the image of the given number."""


def native_files(folder: Path, count: int) -> list[bytes]:
    """Read `count` of the folder's .JPEG files, spread evenly over their sorted names."""
    paths = sorted(folder.rglob("*.JPEG"))
    return [paths[place].read_bytes() for place in spread_evenly(len(paths), count)]


def optimised_bytes(files: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the bytes as baseline files with their own Huffman tables and no metadata, int64 [images]."""
    command = ["jpegtran", "-optimize", "-copy", "none"]
    written = [subprocess.run(command, input=file, capture_output=True, check=True).stdout for file in files]
    return np.array([len(file) for file in written])


class CutImages:
    """Images split by one script."""

    def __init__(self, script: ScanScript, files: Sequence[bytes]) -> None:
        self.script = script
        codec = ProgressiveJpeg(script)
        self._pieces = [codec.split(codec.encode(file)) for file in files]
        sizes = np.array([[len(piece) for piece in pieces] for pieces in self._pieces])
        self.group_bytes = np.cumsum(sizes, axis=1)
        """Bytes up to each group, int64 [images, groups]."""
        self.decoder = codec.open_decoder(MODE)
        """As the loader opens it."""
        self.components = [read_frame(file).num_components for file in files]

    def prefix(self, image: int, group: int) -> bytes:
        """Return an image's file of the first groups."""
        return join_pieces(self._pieces[image][:group])

    def whole(self, group: int, image: int) -> Pixels:
        """Decode a whole image at a group, at full size."""
        return whole_image(self.decoder(self.prefix(image, group), group, "an image"))


class Similarities:
    """MS-SSIM of prefixes against all scans, computed once for prefixes with the same bits of an image."""

    def __init__(self, files: Sequence[bytes]) -> None:
        self._whole = [decode(file) for file in files]
        self._known: dict[Any, float] = {}

    def mean(self, cut: CutImages, group: int, num_images: int) -> float:
        """Return the mean over the first images, at a group."""
        return float(np.mean([self._of(cut, group, image) for image in range(num_images)]))

    def _of(self, cut: CutImages, group: int, image: int) -> float:
        held = prefix_of(cut.script, cut.components[image], group)
        key = image, held.bits, held.denominator
        if key not in self._known:
            pixels = cut.whole(group, image)
            self._known[key] = ms_ssim(self._whole[image], pixels).value
        return self._known[key]


def decoding_cases(cuts: Mapping[str, CutImages], groups: Mapping[str, Sequence[int]]) -> dict[str, Case]:
    """Return cases by `<script> <group>`, which decode whole images at these groups."""
    return {
        f"{name} {group}": partial(cut.whole, group) for name, cut in cuts.items() for group in groups[name]
    }


def baseline_cases(files: Sequence[bytes]) -> dict[str, Case]:
    """Return cases that decode the whole original files, with the loader's decoder and with Pillow."""
    decoder = open_decoder(MODE, "baseline")

    def ours(image: int) -> Pixels:
        return whole_image(decoder(files[image], 1, "an image"))

    def pillow(image: int) -> Pixels:
        with Image.open(io.BytesIO(files[image])) as opened:
            return np.asarray(opened.convert("RGB"))

    return {"baseline": ours, "pillow": pillow}


def crop_cases(files: Sequence[bytes], cuts: Mapping[str, CutImages]) -> dict[str, Case]:
    """Return cases for training's filtered random crop of 224 pixels: all scans, the files, and Pillow."""
    draws = np.random.default_rng(0).random((len(files), TrainTransform.num_draws)).tolist()
    out = np.empty((CROP_PX, CROP_PX, 3), dtype=np.uint8)

    def ours(decoder: Decoder, file: Callable[[int], bytes], group: int, image: int) -> None:
        source = decoder(file(image), group, "an image")
        box = random_crop(source.height_px, source.width_px, AugmentConfig(), draws[image])
        resample(source.part(*box), out, antialias=True)

    def pillow(image: int) -> None:
        with Image.open(io.BytesIO(files[image])) as opened:
            width, height = opened.size
            top, left, rows, columns = random_crop(height, width, AugmentConfig(), draws[image])
            box = (left, top, left + columns, top + rows)
            resized = opened.convert("RGB").resize((CROP_PX, CROP_PX), Image.Resampling.BILINEAR, box=box)
            np.asarray(resized)

    def last(cut: CutImages) -> Case:
        group = cut.script.num_groups
        return partial(ours, cut.decoder, lambda image: cut.prefix(image, group), group)

    cases: dict[str, Case] = {"pillow crop": pillow}
    cases["baseline crop"] = partial(ours, open_decoder(MODE, "baseline"), files.__getitem__, 1)
    return cases | {f"{name} crop": last(cut) for name, cut in cuts.items()}


def cpu_ms(cases: Mapping[str, Case], num_images: int, turns: int) -> dict[str, NDArray[np.float64]]:
    """Return this thread's CPU milliseconds per image by case, [turns], with cases interleaved per image."""
    spent_s = list(by_turns(cases, num_images, turns))
    return {name: 1e3 * np.array([turn[name] for turn in spent_s]) / num_images for name in cases}


Write = Callable[[bytes], object]


def _jpeglib(jpeg: bytes) -> None:
    """Read coefficients to arrays and write them as a baseline file: jpeglib's cost before any scan list."""
    import jpeglib  # a dependency of the tests alone

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        source, out = Path(folder, "in.jpg"), Path(folder, "out.jpg")
        source.write_bytes(jpeg)
        jpeglib.read_dct(str(source)).write_dct(str(out))
        out.read_bytes()


def writers(script: ScanScript) -> dict[tuple[str, str], Write]:
    """Return the functions that write a file, by (way, script)."""
    program = shutil.which("jpegtran")
    found: dict[tuple[str, str], Write] = {("libturbojpeg, in process", "default"): find_transcoder()}
    if program is not None:
        found["jpegtran, a process each", "default"] = Jpegtran(program)
        found["jpegtran -scans, a process each", "default"] = Jpegtran(program, DEFAULT)
        found["jpegtran -scans, a process each", "spectral"] = Jpegtran(program, script)
    found["jpeglib, arrays of coefficients", "none (baseline)"] = _jpeglib
    return found


def rows(script: ScanScript, files: Sequence[bytes], turns: int) -> Iterator[Row]:
    """Measure CPU and wall milliseconds per image of each way, with its processes; ways are interleaved."""
    ways = writers(script)
    for write in ways.values():
        write(files[0])
    cases = [({"way": way, "script": name}, partial(_written, w, files)) for (way, name), w in ways.items()]
    return in_turns(cases, turns)


def _written(write: Write, files: Sequence[bytes]) -> Row:
    cpu_s, started_s = own_cpu_s(), time.perf_counter()
    for file in files:
        write(file)
    return {
        "cpu_ms": 1e3 * (own_cpu_s() - cpu_s) / len(files),
        "wall_ms": 1e3 * (time.perf_counter() - started_s) / len(files),
    }
