"""CPU seconds and memory of the order of an epoch and of the index of records, by the number of images.

Each is measured in a process of its own, by the growth of its peak resident memory. The order is that of one
process with all lanes, laid out as the batches of an epoch use it.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.order import StreamedOrder
from pcr_exp.records.index import INDEX_FILE, TABLE_FILE, RecordEntry, RecordIndex, parse_index
from pcr_exp.records.index_table import read_index, write_index
from pcr_exp.records.markers import record_file
from pcr_exp.storage.local import LocalStorage

IMAGES_PER_RECORD = 1024
NUM_LANES = 8
BATCH_SIZE = 256
MAX_ORDER_IMAGES = 1_000_000_000
"""Orders of more images are not measured: this size takes ten minutes."""
Row = dict[str, Any]


def measure(num_images: int) -> list[Row]:
    """Measure the order and the index of `num_images` images, each in a process of its own."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _in_its_own_process(write_index_of, num_images, folder)
        made: list[tuple[Callable[[Any], Row], Any]] = [(parsed_index, folder)]
        if num_images <= MAX_ORDER_IMAGES:
            made.insert(0, (order_of_an_epoch, num_images))
        if (folder / TABLE_FILE).exists():
            made.append((index_by_table, folder))
        return [
            {"what": what.__name__, "num_images": num_images, **_in_its_own_process(_measured, what, of)}
            for what, of in made
        ]


def _in_its_own_process(do: Callable[..., Any], *of: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(do, of)


def _measured(make: Callable[[Any], Row], of: Any) -> Row:
    before_mib, before_shared_mib = _peak_mib(), _shared_mib()
    row = make(of)
    return {**row, "peak_mib": _peak_mib() - before_mib, "shared_mib": _shared_mib() - before_shared_mib}


def order_of_an_epoch(num_images: int) -> Row:
    """Deal the records to lanes and lay out their samples in order, as a loader does over an epoch."""
    began_s = time.process_time()
    sizes = record_sizes(num_images)
    lanes = EpochLanes(sizes, seed=0, epoch=0, num_lanes=NUM_LANES, window=1)
    order = StreamedOrder([partial(lanes.chunks, 0, 1)], len(sizes), BATCH_SIZE)
    first_batch_s = time.process_time() - began_s
    for batch in range(order.num_batches):
        order.uses(order.batch_start(batch), order.batch_start(batch + 1))
    seconds = time.process_time() - began_s
    return {"cpu_s": seconds, "first_batch_cpu_s": first_batch_s, "file_bytes": None}


def parsed_index(folder: Path) -> Row:
    """Read and parse the index.json of ten scan groups, and access its sizes and its last record."""
    return _opened(lambda: parse_index((folder / INDEX_FILE).read_bytes(), INDEX_FILE), folder / INDEX_FILE)


def index_by_table(folder: Path) -> Row:
    """Open the same index from its table."""
    return _opened(lambda: read_index(LocalStorage(folder), ""), folder / TABLE_FILE)


def _opened(open_index: Callable[[], RecordIndex], file: Path) -> Row:
    began_s = time.process_time()
    index = open_index()
    index.sizes, index.epoch_bytes(index.num_groups), index.records[-1]
    seconds = time.process_time() - began_s
    return {"cpu_s": seconds, "first_batch_cpu_s": None, "file_bytes": file.stat().st_size}


def write_index_of(num_images: int, folder: Path) -> None:
    """Write the index of `num_images` images in ten scan groups, and its table if it is large."""
    ends = tuple(int(end) for end in np.linspace(10**7, 10**8, 10))
    entries = [
        RecordEntry(record_file(number), size, ends, 10**5)
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
    write_index(folder, index)


def record_sizes(num_images: int, images_per_record: int = IMAGES_PER_RECORD) -> list[int]:
    """Return the images of each record; the last may be smaller."""
    full, rest = divmod(num_images, images_per_record)
    return [images_per_record] * full + ([rest] if rest else [])


def _shared_mib() -> float:
    """Return resident file pages in MiB, which processes share and the kernel may reclaim."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssFile")).split()[1]) / 1024


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
