"""What the library of the first scans saves, beside libturbojpeg with the same pixels.

`python -m pcr_exp.measuring.speed.first_scans` prints a table, kept as results/throughput/first_scans.csv:
microseconds of CPU time per native ImageNet image at groups 1 and 2, `scaled`, random-resized-crop 224, in
one process, everything warm; each image by both, one after the other.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.images import decode
from pcr_exp.images.codec import Buffer
from pcr_exp.images.first_scans import find_first_scans_decoder
from pcr_exp.images.resample import resample
from pcr_exp.loading.transform import TrainTransform, random_crop
from pcr_exp.measuring.speed.native_images import add_images, native_records
from pcr_exp.measuring.speed.rows import save_rows
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.system.freed_memory import keep_freed_memory

NUM_IMAGES = 200
IMAGE_SIZE = 224
GROUPS = (1, 2)
DECODERS = {"library": find_first_scans_decoder, "libturbojpeg": lambda: None}
"""By what decodes: what `pcr_exp.images.decode` finds then."""


def measure(jpegs: list[bytes], group: int, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """Per decoder, mean CPU microseconds per image: decoding a crop, and all until it is in the batch."""
    opened = decode.open_decoder("scaled", "pcr")
    out = np.empty((IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    spent = {name: {"decode_us": 0.0, "all_us": 0.0} for name in DECODERS}
    for jpeg in jpegs:
        draws = rng.random(TrainTransform.num_draws).tolist()
        for name, find in DECODERS.items():
            with mock.patch.object(decode, "find_first_scans_decoder", find):
                began_s = time.thread_time()
                image = opened(jpeg, group, "an image")
                part = image.part(*random_crop(image.height_px, image.width_px, AugmentConfig(), draws))
                decoded_s = time.thread_time()
                resample(part, out, antialias=True)
                ended_s = time.thread_time()
            spent[name]["decode_us"] += 1e6 * (decoded_s - began_s) / len(jpegs)
            spent[name]["all_us"] += 1e6 * (ended_s - began_s) / len(jpegs)
    return spent


def rows(images: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """One of each decoder in every repeat; the first round warms."""
    records = RecordSet(LocalStorage(native_records(NUM_IMAGES, 50, images=images)), "pcr")
    jpegs = {group: [bytes(jpeg) for jpeg in prefixes(records, group)] for group in GROUPS}
    rng = np.random.default_rng(0)
    for repeat, group in product(range(-1, repeats), GROUPS):
        for name, spent in measure(jpegs[group], group, rng).items():
            if repeat >= 0:
                yield {"group": group, "decoder": name, "repeat": repeat, **spent}


def prefixes(records: RecordSet, group: int) -> Iterator[Buffer]:
    """Every image's file up to a group."""
    for record in range(len(records.index.records)):
        prefix = records.read_prefix(record, group)
        yield from (prefix.encoded(i) for i in range(len(prefix)))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_images(parser)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("results/throughput/first_scans.csv"))
    arguments = parser.parse_args()
    if find_first_scans_decoder() is None:
        sys.exit("the library is not built: with a C compiler, install pcr-exp again (pip install -e .)")
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    keep_freed_memory()
    save_rows(list(rows(arguments.images, arguments.repeats)), arguments.out)


if __name__ == "__main__":
    main()
