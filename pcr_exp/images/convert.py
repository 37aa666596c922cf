"""Converts PNG and WebP images to JPEG files for records, and reports what the conversion loses."""

from __future__ import annotations

import csv
import io
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops, UnidentifiedImageError

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.errors import DatasetError, ImageError
from pcr_exp.images.jpeg import SOI
from pcr_exp.images.transcode import name_content
from pcr_exp.system.atomic import make_folder, write_atomic

QUALITY = 95

CONVERTIBLE = ("PNG", "WEBP")

BIT_DEPTH = 24
"""Offset of the bit depth in a PNG file, in its first chunk."""

DAMAGED: tuple[type[Exception], ...] = (
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, OverflowError, IndexError, KeyError),
    *(AssertionError, struct.error, zlib.error, Image.DecompressionBombError),
)
"""Errors that Pillow raises for damaged PNG and WebP files."""


@dataclass(frozen=True, slots=True)
class Converted:
    """An image as a JPEG file, and what the conversion lost."""

    jpeg: bytes
    psnr_db: float
    """PSNR of 8-bit pixels before and after, over all channels; infinite if they are identical."""
    left_out: tuple[str, ...]
    """Content that JPEG cannot store: `alpha` (composited on white), `16 bits` (the upper 8 remain)."""


def convert(data: bytes, quality: int = QUALITY, max_pixels: int = MAX_PIXELS) -> Converted:
    """Convert a PNG or WebP file to an 8-bit JPEG, grey or RGB, without chroma subsampling.

    Raises:
        ImageError: it is neither, damaged or animated, has over `max_pixels` pixels, or does not fit a JPEG.
    """
    try:
        with Image.open(io.BytesIO(data), formats=CONVERTIBLE) as image:
            if image.width * image.height > max_pixels:
                raise ImageError(
                    f"{image.width} x {image.height} pixels are more than the limit of {max_pixels}"
                )
            if getattr(image, "n_frames", 1) > 1:
                raise ImageError("animated: a record can hold only one picture per image")
            pixels, left_out = _as_jpeg_has_it(image)
            if image.format == "PNG" and data[BIT_DEPTH] == 16 and "16 bits" not in left_out:
                left_out = (*left_out, "16 bits")  # Pillow opens 16-bit colour as 8-bit
            exif = image.getexif().tobytes() if image.getexif() else b""
    except UnidentifiedImageError as error:
        raise ImageError(f"not a readable PNG or WebP image ({name_content(data)})") from error
    except DAMAGED as error:
        raise ImageError(f"not a readable PNG or WebP image: {error}") from error
    jpeg = _as_jpeg(pixels, quality, exif)
    with Image.open(io.BytesIO(jpeg)) as after:
        return Converted(jpeg, _psnr_db(pixels, after), left_out)


def _as_jpeg(pixels: Image.Image, quality: int, exif: bytes) -> bytes:
    for optimize in (True, False):
        file = io.BytesIO()
        try:
            pixels.save(file, "JPEG", quality=quality, subsampling=0, optimize=optimize, exif=exif)
        except OSError as error:
            if not optimize:
                raise ImageError(f"cannot be written as a JPEG file: {error}") from error
            continue  # to optimize, Pillow holds the whole file in a buffer that detailed images overflow
        except ValueError as error:  # such as EXIF of more than 64 kB
            raise ImageError(f"cannot be written as a JPEG file: {error}") from error
        break
    return file.getvalue()


def _as_jpeg_has_it(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Convert to 8-bit grey or RGB. Also return what that leaves out."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.uint32)
        return Image.fromarray((values >> 8).astype(np.uint8)), ("16 bits",)
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        if seen.getchannel("A").getextrema() != (255, 255):
            on_white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            return Image.alpha_composite(on_white, seen).convert("RGB"), ("alpha",)
    return image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), ()


def _psnr_db(before: Image.Image, after: Image.Image) -> float:
    """10 log10(255^2 / mean squared difference)."""
    difference = np.asarray(ImageChops.difference(before, after), dtype=np.float64)
    mean_square = float(np.mean(difference**2))
    return math.inf if mean_square == 0 else 10 * math.log10(255**2 / mean_square)


CONVERTED_FILE = "converted.csv"

_AS_THEY_ARE = {".jpg", ".jpeg"}

_CONVERTED = {".png", ".webp"}

_CONVERTED_CONTENT = {"PNG content", "WebP content"}


class Outcome(NamedTuple):
    """The outcome of a conversion: a row of `converted.csv`. Copied files have none."""

    file: str
    bytes_before: int
    bytes_after: int
    """0 if it could not be converted."""
    psnr_db: float
    left_out: str
    """Content that JPEG cannot store."""
    error: str


def convert_folder(
    source: Path, target: Path, *, quality: int, num_threads: int, done: Callable[[int, int], None]
) -> list[Outcome]:
    """Copy JPEG files, convert PNG and WebP files, and write `converted.csv`. Other files are skipped.

    Files are chosen by their suffix, also in linked folders, and treated by their content. `a/cat.png`
    becomes `a/cat.png.jpg`. `source` is not changed. `done` is called with (files done, total).

    Returns:
        An outcome for every PNG and WebP file, and every file that cannot be read or is no image, in order.

    Raises:
        DatasetError: `source` is not a folder or has no image, two files would become one, or `target` has
            files already.
        StorageError: the disk is full or a write fails.
    """
    files = [path for path in _files(source) if path.suffix.lower() in _AS_THEY_ARE | _CONVERTED]
    if not files:
        raise DatasetError(f"{source}: there is no .jpg, .jpeg, .png or .webp file in this folder.")
    if target.exists() and any(target.iterdir()):
        raise DatasetError(f"{target} has files already: choose a new folder for the JPEG files.")
    made: dict[Path, Path] = {}
    for path in files:
        if (other := made.setdefault(_made_of(path), path)) is not path:
            raise DatasetError(f"{other} and {path} would become one file: rename one of them.")
    outcomes = []
    with ThreadPoolExecutor(num_threads, "pcr-exp-convert") as pool:
        work = pool.map(partial(_carry, source=source, target=target, quality=quality), files)
        for number, outcome in enumerate(work, start=1):
            done(number, len(files))
            if outcome is not None:
                outcomes.append(outcome)
    write_atomic(target / CONVERTED_FILE, _as_csv(outcomes))
    return outcomes


def passed_over(source: Path) -> list[str]:
    """Files that `convert_folder` skips, as sorted paths relative to `source`."""
    return [
        str(path.relative_to(source))
        for path in _files(source)
        if path.suffix.lower() not in _AS_THEY_ARE | _CONVERTED
    ]


def _files(source: Path) -> list[Path]:
    """Return all files, sorted. Linked folders are searched too, but none within itself."""
    found: list[Path] = []
    for folder, subfolders, names in os.walk(source, followlinks=True):
        above = {os.path.realpath(parent) for parent in (Path(folder), *Path(folder).parents)}
        subfolders[:] = [name for name in subfolders if os.path.realpath(Path(folder, name)) not in above]
        found += (Path(folder, name) for name in names)
    return sorted(found)


def _carry(path: Path, *, source: Path, target: Path, quality: int) -> Outcome | None:
    name = path.relative_to(source)
    make_folder((target / name).parent)
    try:
        data = path.read_bytes()
    except OSError as error:
        return Outcome(str(name), 0, 0, 0.0, "", f"cannot be read: {error.strerror}")
    content = name_content(data)  # the suffix may be wrong
    is_named_jpeg = path.suffix.lower() in _AS_THEY_ARE
    if data.startswith(SOI) or (is_named_jpeg and content not in _CONVERTED_CONTENT):
        write_atomic(_made_of(target / name), [data])
        if data.startswith(SOI):
            return None
        return Outcome(str(name), len(data), len(data), 0.0, "", f"{content}, copied as it is")
    try:
        converted = convert(data, quality)
    except ImageError as error:
        return Outcome(str(name), len(data), 0, 0.0, "", str(error))
    write_atomic(_made_of(target / name), [converted.jpeg])
    left_out = " ".join(converted.left_out)
    return Outcome(str(name), len(data), len(converted.jpeg), round(converted.psnr_db, 2), left_out, "")


def _made_of(path: Path) -> Path:
    return path if path.suffix.lower() in _AS_THEY_ARE else path.with_name(f"{path.name}.jpg")


def _as_csv(outcomes: list[Outcome]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Outcome._fields)
    writer.writerows(outcomes)
    yield text.getvalue().encode(errors="surrogateescape")  # a file name need not be UTF-8
