"""CPU milliseconds to encode and to decode an image, by dataset.

    python -m experiments.loaders.speed.per_set imagenet=$HOME/photographs/imagenet ... --out results/datasets

prints a table, saved as outputs/datasets/cost.csv: one process, files in memory, everything warm, the cases
of an image in turn. `transcode` is from the file to progressive scans with the same coefficients. Decoding is
to RGB: libjpeg-turbo, without block smoothing, decodes the file and all ten scans. This project's decoder
decodes the first 10, 5, 2 and 1 scans.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from experiments.loaders.speed.decoder import ORIGINAL, SCANS, call_of, files_of, own_and_turbo
from experiments.results.study import Row, Study, by_turns, one_core
from pcr_exp.errors import DatasetError, ImageError
from pcr_exp.images.transcode import to_progressive

JPEGS = {".jpg", ".jpeg"}


def sample_files(folder: Path, num_images: int) -> list[Path]:
    """Return up to `num_images` of a folder's JPEG files, chosen at random with a fixed seed.

    Raises:
        DatasetError: the folder has none.
    """
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in JPEGS)
    if not found:
        raise DatasetError(f"{folder}: holds no JPEG file. Name a set as name=folder")
    return random.Random(0).sample(found, min(num_images, len(found)))


def rows(given: Namespace) -> Iterator[Row]:
    """Measure each set's cases in turn, image by image."""
    one_core()
    ours, turbo = own_and_turbo()
    for name, _, folder in (one.partition("=") for one in given.sets):
        cases: dict[str, list[Callable[[], object]]] = {}
        num_bytes = 0
        for path in sample_files(Path(folder), given.num_images):
            original = path.read_bytes()
            try:
                files = files_of(original)
                calls: dict[str, Callable[[], object]] = {
                    "transcode_ms": partial(to_progressive, original),
                    "original_ms": call_of(turbo, files[ORIGINAL][1], 1.0),
                    "libjpeg_10_ms": call_of(turbo, files["10 scans"][1], 1.0),
                    **{f"ours_{count}_ms": call_of(ours, files[f"{count} scans"][0], 1.0) for count in SCANS},
                }
            except ImageError:  # grey, CMYK, and files that libjpeg cannot be kept from smoothing
                continue
            num_bytes += len(original)
            for case, call in calls.items():
                cases.setdefault(case, []).append(call)
        num_images = len(cases["transcode_ms"])
        by_case = {case: lambda item, each=each: each[item]() for case, each in cases.items()}
        for repeat, spent_s in enumerate(by_turns(by_case, num_images, given.repeats)):
            took_ms = {case: 1e3 * seconds / num_images for case, seconds in spent_s.items()}
            set_columns = {"set": name, "images": num_images, "kb": num_bytes / num_images / 1e3}
            yield {**set_columns, "repeat": repeat, **took_ms}


main = Study(__doc__, "outputs/datasets/cost.csv", rows, images=False)
main.add("sets", nargs="+", metavar="NAME=FOLDER")
main.add("--num-images", type=int, default=200)

if __name__ == "__main__":
    main()
