"""Cost of the start of an epoch where storage is as fast as training, by the number of records read ahead.

`python -m experiments.loaders.speed.epoch_starts` trains (sleeps) as fast as the bandwidth delivers native
ImageNet images, over epochs of 20 records. It prints a table and saves it as epoch_starts.csv in
outputs/throughput. An epoch's first batch needs a record of every lane. If some are not read while the
previous epoch ends, storage idles, and then training waits for them.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from experiments.loaders.speed.throttled_loader import SCANS, UNLIMITED, open_loader
from experiments.results.study import Row, Study, in_turns, native_records
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.open import open_storage
from pcr_exp.system import MIB

NUM_IMAGES, IMAGES_PER_RECORD = 1280, 64


def measure_epochs(
    folder: Path, scan: str, mib_per_s: float, records_ahead: int | None, num_epochs: int
) -> Row:
    """Measure images/s and the share of time spent waiting, both after the first batch, and its seconds.

    Args:
        folder: Folder with both encodings of a split.
        scan: A key of `throttled_loader.SCANS`.
        mib_per_s: Bandwidth of the storage.
        records_ahead: As `loader.records_ahead`.
        num_epochs: Epochs in one stream.
    """
    storage = StorageConfig(name="test", bandwidth_mib_per_s=mib_per_s)
    config = LoaderConfig(num_workers=1, records_ahead=records_ahead)
    encoding, group = SCANS[scan]
    index = RecordSet(open_storage(str(folder), UNLIMITED), encoding).index
    images_per_s = mib_per_s * MIB * index.num_samples / index.epoch_bytes(group)
    with open_loader(folder, scan, storage, config) as loader:
        started_s = time.perf_counter()
        stream = loader.batches(0, 0, num_epochs)
        num_images = len(next(stream).labels)
        first_s = time.perf_counter() - started_s
        waited_s, began_s = 0.0, time.perf_counter()
        time.sleep(num_images / images_per_s)
        asked_s = time.perf_counter()
        for batch in stream:
            waited_s += time.perf_counter() - asked_s
            num_images += len(batch.labels)
            time.sleep(len(batch.labels) / images_per_s)
            asked_s = time.perf_counter()
        took_s = time.perf_counter() - began_s
        return {
            "held_mib": loader.max_held_bytes() / MIB,
            "first_batch_s": first_s,
            "images_per_s": num_images / took_s,
            "share_of_bound": num_images / took_s / images_per_s,
            "wait_share": waited_s / took_s,
        }


def rows(given: Namespace) -> Iterator[Row]:
    """Measure four records ahead and the loader's own choice, in turn."""
    folder = native_records(NUM_IMAGES, IMAGES_PER_RECORD, images=given.images)
    case = {"scan": given.scan, "bandwidth_mib_per_s": given.mib_per_s, "epochs": given.epochs}
    cases = [
        (
            {**case, "records_ahead": word},
            partial(measure_epochs, folder, given.scan, given.mib_per_s, records_ahead, given.epochs),
        )
        for word, records_ahead in (("4", 4), ("default", None))
    ]
    return in_turns(cases, given.repeats)


main = Study(__doc__, "outputs/throughput/epoch_starts.csv", rows, repeats=3)
main.add("--scan", choices=SCANS, default="group_5")
main.add("--mib-per-s", type=float, default=10)
main.add("--epochs", type=int, default=4)

if __name__ == "__main__":
    main()
