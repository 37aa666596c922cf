"""Where one core's time goes from record bytes to a batch, at each scan group and decode mode.

`python -m experiments.loaders.speed.decode` prints a table and saves it as outputs/antialias/cost.csv:
microseconds of CPU time per native ImageNet image, random-resized-crop to 224 px, in one process, everything
warm. Cases with and without the filter of `loader.antialias` take turns.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from experiments.results.study import Row, Study, in_turns, native_records, one_core
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.images.codec import Part, Pixels
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.resample import resample
from pcr_exp.loading.transform import TrainTransform, random_crop
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

NUM_IMAGES = 200
IMAGE_SIZE = 224
CASES = [
    ("baseline", 1, "scaled"),
    *product(("pcr",), (10, 5), ("libjpeg", "scaled")),
    *product(("pcr",), (2, 1), ("libjpeg", "unsmoothed", "scaled")),
]
"""(encoding, scan group, loader.decode). From group 3 on `scaled` equals `unsmoothed`; for baseline records
all modes are equal."""
FILTERS = {"no": False, "yes": True}
"""Values of `loader.antialias` by their names in rows."""


def profile(folder: Path, encoding: str, group: int, mode: str, *, antialias: bool) -> Row:
    """Return mean CPU microseconds per image of each step, and images/s of all steps together."""
    spent_s: dict[str, float] = dict.fromkeys(("read", "join", "decode", "resample", "flip"), 0.0)
    records = RecordSet(LocalStorage(folder), encoding)
    decoder = open_decoder(mode, encoding)
    out = np.empty((IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    rng = np.random.default_rng(0)

    def timed(step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        started_s = time.thread_time()
        result = call(*arguments)
        spent_s[step] += time.thread_time() - started_s
        return result

    def resized(part: Part, out: Pixels) -> None:
        resample(part, out, antialias=antialias)

    def decoded(jpeg: bytes, draws: list[float]) -> Any:
        image = decoder(jpeg, group, "an image")
        return image.part(*random_crop(image.height_px, image.width_px, AugmentConfig(), draws))

    num_images = 0
    for record in range(len(records.index.records)):
        prefix = timed("read", records.read_prefix, record, group)
        for i in range(len(prefix)):
            jpeg = timed("join", prefix.encoded, i)
            draws = rng.random(TrainTransform.num_draws).tolist()
            part = timed("decode", decoded, jpeg, draws)
            timed("resample", resized, part, out)
            timed("flip", cv2.flip, out, 1, out)
            num_images += 1
    per_image = {f"{step}_us": 1e6 * total / num_images for step, total in spent_s.items()}
    return {**per_image, "images_per_s_per_core": num_images / sum(spent_s.values())}


def rows(given: Namespace) -> Iterator[Row]:
    """Measure the cases in turn."""
    one_core()
    folder = native_records(NUM_IMAGES, 50, images=given.images)
    cases: list[tuple[Row, Callable[[], Row]]] = []
    for (encoding, group, mode), (word, antialias) in product(CASES, FILTERS.items()):
        scan = "baseline" if encoding == "baseline" else f"group_{group}"
        case = {"scan": scan, "decode": mode, "antialias": word}
        cases.append((case, partial(profile, folder, encoding, group, mode, antialias=antialias)))
    for _, warm in cases[1::2]:
        warm()
    return in_turns(cases, given.repeats)


main = Study(__doc__, "outputs/antialias/cost.csv", rows)

if __name__ == "__main__":
    main()
