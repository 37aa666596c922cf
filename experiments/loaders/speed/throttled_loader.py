"""Share of min(bandwidth / mean prefix, its own speed) that the loader reaches under a throttle.

`python -m experiments.loaders.speed.throttled_loader --mib-per-s 1` measures all scan levels at one bandwidth
on native ImageNet images in records of 64, prints a table and saves it as bound.csv in outputs/throttle.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from experiments.results.study import Row, Study, native_records
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.open import open_storage
from pcr_exp.system import MIB

NUM_IMAGES, BATCH_SIZE = 1280, 64
UNLIMITED = StorageConfig(name="unlimited")
SCANS = {"baseline": ("baseline", 1), **{f"group_{group}": ("pcr", group) for group in (10, 5, 2, 1)}}
_LET_BY = 8
"""Batches skipped before a measurement: they may have been read or decoded already, and would seem free."""
_CLEARLY_SLOWER = 1.5
_OWN_S, _MEASURED_S = 1.5, 3.0


class Taken(NamedTuple):
    """Batches taken from a running stream."""

    seconds: float
    num_images: int
    mib: float


def open_loader(folder: Path, scan: str, storage: StorageConfig, config: LoaderConfig) -> RecordLoader:
    """Return a loader of one scan level with batches of 64."""
    encoding, group = SCANS[scan]
    return RecordLoader(
        RecordSet(open_storage(str(folder), storage), encoding),
        StaticScan(group),
        config,
        transform=TrainTransform(224, AugmentConfig()),
        label="number",
        batch_size=BATCH_SIZE,
        seed=0,
        shuffle=True,
        storage_config=storage,
    )


def take(stream: Iterator[Batch], num_batches: int) -> Taken:
    """Take `num_batches` batches and measure the seconds."""
    started_s = time.perf_counter()
    num_images = num_bytes = 0
    for _ in range(num_batches):
        batch = next(stream)
        num_images += len(batch.labels)
        num_bytes += batch.record_bytes
    return Taken(time.perf_counter() - started_s, num_images, num_bytes / MIB)


def own_seconds(unthrottled: Iterator[Batch]) -> float:
    """Return seconds per batch at the loader's own speed, after skipping what was decoded beforehand."""
    take(unthrottled, _LET_BY)
    started_s, num_batches = time.perf_counter(), 0
    while time.perf_counter() - started_s < _OWN_S:
        next(unthrottled)
        num_batches += 1
    return (time.perf_counter() - started_s) / num_batches


def measure_bound(
    unthrottled: Iterator[Batch],
    folder: Path,
    scan: str,
    mib_per_s: float,
    *,
    repeats: int,
    config: LoaderConfig,
) -> Iterator[Row]:
    """Yield rows of one scan level at one bandwidth.

    The loader's own speed is measured before and after every repeat, because other work on the machine
    changes it. Where storage is clearly slower, it does not matter, and is measured once.
    """
    own_s = own_seconds(unthrottled)
    pipe_s = take(unthrottled, 20).mib / 20 / mib_per_s
    storage_bound = pipe_s > _CLEARLY_SLOWER * own_s
    window = config.shuffle_records  # in batches; bytes count at a window's first batch
    num_batches = _whole_windows(max(2, math.ceil(_MEASURED_S / max(pipe_s, own_s))), window)
    with open_loader(
        folder, scan, StorageConfig(name="test", bandwidth_mib_per_s=mib_per_s), config
    ) as loader:
        throttled = loader.batches(0, 0, 10**6)
        # Skip bytes that arrive while workers start: they would seem free.
        take(throttled, _whole_windows(1 + math.ceil(0.5 / pipe_s) if storage_bound else _LET_BY, window))
        for repeat in range(repeats):
            before_s = own_s if storage_bound else own_seconds(unthrottled)
            if not storage_bound:
                take(throttled, _LET_BY)
            done = take(throttled, num_batches)
            around_s = own_s if storage_bound else (before_s + own_seconds(unthrottled)) / 2
            bound_s = max(done.mib / mib_per_s, num_batches * around_s)
            yield {
                "bandwidth_mib_per_s": mib_per_s,
                "scan": scan,
                "shuffle_records": window,
                "repeat": repeat,
                "images_per_s": done.num_images / done.seconds,
                "mib_per_s": done.mib / done.seconds,
                "unthrottled_images_per_s": BATCH_SIZE / around_s,
                "share_of_bound": bound_s / done.seconds,
            }


def _whole_windows(num_batches: int, window: int) -> int:
    return -(-num_batches // window) * window


def rows(given: Namespace) -> Iterator[Row]:
    """Measure every scan level in its own stream; its repeats are consecutive."""
    torch.set_num_threads(1)
    # 20 whole records, each a batch, so that windows begin and end with batches.
    folder = native_records(NUM_IMAGES, BATCH_SIZE, images=given.images)
    config = LoaderConfig(num_workers=2, shuffle_records=given.shuffle_records, decode=given.decode)
    for scan in given.scans:
        with open_loader(folder, scan, UNLIMITED, config) as loader:
            stream = loader.batches(0, 0, 10**6)
            yield from measure_bound(
                stream, folder, scan, given.mib_per_s, repeats=given.repeats, config=config
            )


main = Study(__doc__, "outputs/throttle/bound.csv", rows, repeats=3)
main.add("--mib-per-s", type=float, required=True)
main.add("--scans", nargs="+", choices=SCANS, default=list(SCANS))
main.add("--decode", default="libjpeg")
main.add("--shuffle-records", type=int, default=4)

if __name__ == "__main__":
    main()
