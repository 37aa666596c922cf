"""However slow the trainer, the loader holds at most (records in use + records ahead) x prefix size."""

import io
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import skimage.data
from PIL import Image

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.echo.variants import ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.loading.lanes import num_held
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.records.format import RecordHeader, pack_record
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.index import INDEX_FILE, RecordEntry, RecordIndex, dump_index
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

REPO = Path(__file__).parents[2]
MIB = 2**20


class Held(RecordPrefix):
    """A prefix that can be weakly referenced."""


class WatchedRecords(RecordSet):
    """Counts the bytes of prefixes that are being read or are still referenced."""

    def __init__(self, storage: LocalStorage, folder: str) -> None:
        super().__init__(storage, folder)
        self.held_bytes = self.peak_bytes = self.num_reads = 0
        self._lock = threading.RLock()  # a finalizer may run while this thread holds it

    def read_prefix(self, record: int, group: int) -> RecordPrefix:
        num_bytes = self.index.prefix_bytes(record, group)
        self._count(num_bytes)
        prefix = super().read_prefix(record, group)
        held = Held(**{field.name: getattr(prefix, field.name) for field in fields(RecordPrefix)})
        weakref.finalize(held, self._count, -num_bytes)
        return held

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.held_bytes += num_bytes
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)
            self.num_reads += num_bytes > 0

    def settle(self) -> None:
        """Wait until no read has begun for 20 ms."""
        num_reads = -1
        while num_reads != self.num_reads:
            num_reads = self.num_reads
            time.sleep(0.02)


@pytest.mark.parametrize("group", [1, 10])
@pytest.mark.parametrize(
    ("batch_size", "lanes", "shuffle_records", "records_ahead", "num_workers"),
    [(12, 2, 1, None, 0), (12, 2, 2, None, 2), (12, 3, 1, 1, 0), (50, 1, 1, 2, 0), (100, 2, 1, 1, 1)],
)
def test_a_stalled_consumer_leaves_the_loader_within_its_bound(
    split: Path,
    open_loader: Callable[..., RecordLoader],
    group: int,
    batch_size: int,
    lanes: int,
    shuffle_records: int,
    records_ahead: int | None,
    num_workers: int,
) -> None:
    config = LoaderConfig(
        num_workers=num_workers,
        lanes=lanes,
        shuffle_records=shuffle_records,
        records_ahead=records_ahead,
    )
    # In a batch of all 100 images, the first may be released before the last is read: try up to five times.
    for _ in range(5):
        records = WatchedRecords(LocalStorage(split), "pcr")
        loader = open_loader(group=group, records=records, batch_size=batch_size, config=config)
        bound = loader.max_held_bytes()
        for _ in loader.batches(0, 0, 3):
            records.settle()
        assert records.num_reads == 3 * len(records.index.records)
        assert records.peak_bytes <= bound
        loader.close()
        assert records.held_bytes == 0
        if records.peak_bytes >= bound / 2:
            break
    assert records.peak_bytes >= bound / 2


@pytest.mark.parametrize("batch_size", [1, 50])
def test_the_bound_is_the_records_in_use_and_ahead_times_the_largest_prefix(
    records: RecordSet, open_loader: Callable[..., RecordLoader], batch_size: int
) -> None:
    """With six records of 16 and one of 4, no more than all seven are held, however many lanes there are."""
    for lanes, window, world_size, in_use in ((2, 1, 1, 3), (2, 3, 1, 7), (8, 1, 1, 7), (8, 1, 4, 3)):
        config = LoaderConfig(num_workers=0, lanes=lanes, shuffle_records=window, records_ahead=5)
        for group in (1, 10):
            loader = open_loader(group=group, batch_size=batch_size, config=config, world_size=world_size)
            largest = max(records.index.prefix_bytes(record, group) for record in range(7))
            assert loader.max_held_bytes() == (in_use + 5) * largest


def test_a_process_of_eight_lanes_holds_no_more_than_two_windows_of_four_did() -> None:
    """With all records but one of one size, as by encoders, 9 are held; two windows held (2 x 4) + 4."""
    for num_records in (100, 1000):
        assert num_held([64] * num_records + [13], 8, 1) == 9
    assert num_held([64] * 100, 2, 1) == 3, "of four processes, each holds its lanes'"


@pytest.mark.parametrize("variant", [ExampleBeforeConfig, ExampleAfterConfig])
def test_a_shuffle_buffer_of_echo_is_within_the_bound(
    split: Path, open_loader: Callable[..., RecordLoader], variant: type[EchoConfig]
) -> None:
    """Before decoding, the buffer keeps at most one record per sample, and no more than exist."""
    for buffer, num_in_buffer in ((3, 3), (60, 7)):
        records = WatchedRecords(LocalStorage(split), "pcr")
        loader = open_loader(
            records=records,
            config=LoaderConfig(num_workers=0, lanes=2, records_ahead=1),
            echo=variant(factor=2, buffer=buffer),
        )
        bound = loader.max_held_bytes()
        largest = max(records.index.prefix_bytes(record, 5) for record in range(7))
        in_use = min(3 + (num_in_buffer if variant is ExampleBeforeConfig else 0), 7)
        assert bound == (in_use + 1) * largest
        for _ in loader.batches(0, 0, 2):
            records.settle()
        assert records.peak_bytes <= bound


PROGRAM = """
import json, sys, time, torch
from pathlib import Path
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.policies.policy import StaticScan
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

def peak():
    # getrusage's ru_maxrss would begin with what the process was that started this one.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])

torch.set_num_threads(1)
storage = CountingStorage(LocalStorage(sys.argv[1]))
records = RecordSet(storage, "")
loader = RecordLoader(
    records, StaticScan(1), LoaderConfig(num_workers=1, lanes=2),
    transform=TrainTransform(32, AugmentConfig()), label="number", batch_size=64, seed=0, shuffle=True,
)
before = peak()
stream = loader.batches(0, 0, 2)
for _ in range(3 * 16):
    next(stream)
reads = -1
while reads != storage.num_reads:  # the trainer stalls
    reads = storage.num_reads
    time.sleep(0.5)
loader.close()
print(json.dumps({"grown": peak() - before, "bound": loader.max_held_bytes(), "read": storage.bytes_read}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process's memory from /proc")
def test_records_of_imagenet_s_size_take_no_more_memory_than_the_bound(tmp_path: Path) -> None:
    """The whole process stays within the bound, with 12 records of over 100 MB of which three are used up."""
    largest = write_large_records(tmp_path, num_records=12)
    assert largest > 100e6
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, cwd=REPO, check=True
    )
    told = json.loads(done.stdout)
    print(told)
    assert told["bound"] == (2 + 1 + 4) * largest
    assert told["read"] >= 7 * largest
    # 64 MiB for everything else: the decoder's process is forked, and batches are in shared memory.
    assert told["bound"] / 2 <= told["grown"] <= told["bound"] + 64 * MIB


def write_large_records(folder: Path, num_records: int) -> int:
    """Write records of 1,024 photographs, all hard links to one file; return the bytes of one record."""
    buffer = io.BytesIO()
    Image.fromarray(skimage.data.astronaut()[:448, :448]).save(buffer, "JPEG", quality=97)
    header = RecordHeader(
        dataset="large",
        split="train",
        encoding="baseline",
        fingerprint="0",
        num_groups=1,
        ids=[str(i) for i in range(1024)],
        labels={"number": [0] * 1024},
    )
    packed = pack_record(header, [[buffer.getvalue()]] * 1024)
    (folder / "0.pcr").write_bytes(b"".join(packed.chunks))
    for number in range(1, num_records):
        os.link(folder / "0.pcr", folder / f"{number}.pcr")
    entries = [
        RecordEntry(f"{number}.pcr", 1024, packed.group_ends, packed.header_bytes)
        for number in range(num_records)
    ]
    index = RecordIndex("large", "train", "baseline", "0", 1, {"number": ["0"]}, entries)
    (folder / INDEX_FILE).write_bytes(dump_index(index))
    return packed.group_ends[0]
