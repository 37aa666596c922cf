"""What the order of an epoch and the index of records take, by the number of images: CPU seconds and memory.

    python -m pcr_exp.measuring.scale.order_cost 1000000 10000000

Each size is measured in a process of its own, whose peak of resident memory is what it took. An order is that
of one process that has all lanes, laid out as the batches of an epoch use it.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.streamed_order import StreamedOrder
from pcr_exp.records.index import RecordEntry, RecordIndex, dump_index, parse_index

IMAGES_PER_RECORD = 1024
NUM_LANES = 8
BATCH_SIZE = 256
MAX_ORDER_IMAGES = 100_000_000
"""Orders of more are not made: they take minutes."""
Row = dict[str, Any]


def measure(num_images: int) -> list[Row]:
    """What the order and the index of so many images take; each is measured in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    rows = []
    for what in (order_of_an_epoch, index_of_records):
        if what is order_of_an_epoch and num_images > MAX_ORDER_IMAGES:
            continue
        with spawn.Pool(1) as pool:
            rows.append(
                {"what": what.__name__, "num_images": num_images, **pool.apply(_measured, (what, num_images))}
            )
    return rows


def _measured(make: Callable[[int], Row], num_images: int) -> Row:
    before_mib = _peak_mib()
    row = make(num_images)
    return {**row, "peak_mib": _peak_mib() - before_mib}


def order_of_an_epoch(num_images: int) -> Row:
    """Deal the records to lanes and lay out their samples in order, as a loader does through an epoch."""
    began_s = time.process_time()
    sizes = record_sizes(num_images)
    lanes = EpochLanes(sizes, seed=0, epoch=0, num_lanes=NUM_LANES, window=1)
    order = StreamedOrder([partial(lanes.stretches, 0, 1)], len(sizes), BATCH_SIZE)
    first_batch_s = time.process_time() - began_s
    for batch in range(order.num_batches):
        order.uses(order.batch_start(batch), order.batch_start(batch + 1))
    seconds = time.process_time() - began_s
    return {"cpu_s": seconds, "first_batch_cpu_s": first_batch_s, "file_bytes": None}


def index_of_records(num_images: int) -> Row:
    """Parse the index.json of ten scan groups; making the file is not counted as time."""
    ends = tuple(int(end) for end in np.linspace(10**7, 10**8, 10))
    entries = [
        RecordEntry(f"{number:06d}.pcr", size, ends, 10**5)
        for number, size in enumerate(record_sizes(num_images))
    ]
    index = RecordIndex(
        dataset="d",
        split="train",
        encoding="pcr",
        fingerprint=16 * "0",
        num_groups=10,
        classes={"class": ["a", "b"]},
        records=entries,
        images=16 * "0",
        scans="libjpeg-default",
    )
    data = dump_index(index)
    began_s = time.process_time()
    parse_index(data, "index.json")
    return {"cpu_s": time.process_time() - began_s, "first_batch_cpu_s": None, "file_bytes": len(data)}


def record_sizes(num_images: int, images_per_record: int = IMAGES_PER_RECORD) -> list[int]:
    """Images of each record, the last one being smaller."""
    full, rest = divmod(num_images, images_per_record)
    return [images_per_record] * full + ([rest] if rest else [])


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure the sizes on the command line and print a row of JSON for each."""
    for text in sys.argv[1:]:
        for row in measure(int(text)):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
