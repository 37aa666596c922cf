"""A folder of images with PNG and WebP among them, as a folder of JPEG files that records are made of."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pcr_exp.errors import DatasetError, ImageError
from pcr_exp.images.convert import convert
from pcr_exp.system.atomic import make_folder, write_atomic

CONVERTED_FILE = "converted.csv"
_AS_THEY_ARE = {".jpg", ".jpeg"}
_CONVERTED = {".png", ".webp"}


class Outcome(NamedTuple):
    """What became of a file: a row of `converted.csv`. Of one that was copied there is none."""

    file: str
    bytes_before: int
    bytes_after: int
    """0 if it could not be converted."""
    psnr_db: float
    left_out: str
    """What a JPEG has no room for."""
    error: str


def convert_folder(
    source: Path, target: Path, *, quality: int, num_threads: int, done: Callable[[int, int], None]
) -> list[Outcome]:
    """Copy JPEG files, convert PNG and WebP files, and write `converted.csv`; other files are left out.

    `a/cat.png` becomes `a/cat.png.jpg`. Nothing in `source` is changed. `done` is told (files done, in all).

    Returns:
        An outcome for every PNG and WebP file, in order.

    Raises:
        DatasetError: `source` is no folder or has no image, or `target` has files already.
        StorageError: the disk is full or refuses.
    """
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in _AS_THEY_ARE | _CONVERTED)
    if not files:
        raise DatasetError(f"{source}: there is no .jpg, .jpeg, .png or .webp file in this folder.")
    if target.exists() and any(target.iterdir()):
        raise DatasetError(f"{target} has files already: choose a new folder for the JPEG files.")
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
    """The files of a folder that `convert_folder` leaves out, by their names below it, in order."""
    files = (path for path in source.rglob("*") if path.is_file())
    return sorted(
        str(path.relative_to(source))
        for path in files
        if path.suffix.lower() not in _AS_THEY_ARE | _CONVERTED
    )


def _carry(path: Path, *, source: Path, target: Path, quality: int) -> Outcome | None:
    name = path.relative_to(source)
    make_folder((target / name).parent)
    data = path.read_bytes()
    if path.suffix.lower() in _AS_THEY_ARE:
        write_atomic(target / name, [data])
        return None
    try:
        converted = convert(data, quality)
    except ImageError as error:
        return Outcome(str(name), len(data), 0, 0.0, "", str(error))
    write_atomic(target / f"{name}.jpg", [converted.jpeg])
    left_out = " ".join(converted.left_out)
    return Outcome(str(name), len(data), len(converted.jpeg), round(converted.psnr_db, 2), left_out, "")


def _as_csv(outcomes: list[Outcome]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Outcome._fields)
    writer.writerows(outcomes)
    yield text.getvalue().encode()
