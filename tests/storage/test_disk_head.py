"""The throttle compared with a disk with one head: a simulated device that sleeps, in its own process.

Run on an otherwise idle machine, with
`python -m pytest -m slow tests/storage/test_disk_head.py -s`. With THROTTLE_RESULTS=<folder> in the
environment, the measurements are written to head_reads.csv and head_epochs.csv there.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from numbered_records import encode_numbered, square_crops
from storage_compare import compare
from storage_head_device import HeadStorage, head_device

from pcr_exp.config.loader import StorageConfig
from pcr_exp.records.index import parse_index
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import Storage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage

pytestmark = [pytest.mark.slow, pytest.mark.alone]

REPO = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("storage_epoch.py")
NUM_IMAGES = 240
MIB = 2**20


def read_together(storage: Storage, num_readers: int, num_reads: int, num_bytes: int) -> float:
    """Return the seconds that the threads take to share the reads, each doing one at a time."""

    def read() -> None:
        for _ in range(num_reads // num_readers):
            assert len(storage.read("a", 0, num_bytes)) == num_bytes

    threads = [threading.Thread(target=read) for _ in range(num_readers)]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - started_s


@pytest.mark.parametrize("num_readers", [1, 2, 8])
@pytest.mark.parametrize(("read_kib", "num_reads"), [(16, 240), (512, 160), (4096, 64)])
def test_reads_take_as_long_as_from_a_disk_head(
    tmp_path: Path, num_readers: int, read_kib: int, num_reads: int
) -> None:
    """storage=hdd: 8 ms and 150 MiB/s, so transfer takes 0.1 ms for a read of 16 KiB and 27 ms for 4 MiB."""
    seek_ms, mib_per_s = 8.0, 150.0
    (tmp_path / "a").write_bytes(bytes(read_kib * 1024))
    local = LocalStorage(tmp_path)
    config = StorageConfig(name="hdd", bandwidth_mib_per_s=mib_per_s, seek_ms=seek_ms)
    throttled = ThrottledStorage(local, Throttle.create(config))
    bytes_s = num_reads * read_kib / 1024 / mib_per_s
    with head_device(tmp_path, mib_per_s, seek_ms) as address:
        compare(
            "head_reads.csv",
            {
                "bandwidth_mib_per_s": mib_per_s,
                "seek_ms": seek_ms,
                "read_kib": read_kib,
                "num_readers": num_readers,
                "num_reads": num_reads,
            },
            lambda: read_together(HeadStorage(local, address), num_readers, num_reads, read_kib * 1024),
            lambda: read_together(throttled, num_readers, num_reads, read_kib * 1024),
            {"bytes_over_bandwidth_s": bytes_s, "seeks_and_bytes_s": bytes_s + num_reads * seek_ms / 1e3},
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty records of four photographs of about 100 kB, small enough that seeks count."""
    jpegs = square_crops(((i % 60, i // 60) for i in range(NUM_IMAGES)), 448, quality=96)
    return encode_numbered(jpegs, tmp_path_factory.mktemp("head"), images_per_record=4, num_workers=2)


@pytest.mark.parametrize(
    ("group", "mib_per_s", "seek_ms"), [(1, 4, 40), (2, 4, 20), (5, 8, 20), (10, 16, 20)]
)
def test_an_epoch_takes_as_long_as_from_a_disk_head(
    folder: Path, tmp_path: Path, group: int, mib_per_s: float, seek_ms: float
) -> None:
    """The loader has several reads in flight, and none of them hides a seek."""
    index = parse_index((folder / "pcr" / "index.json").read_bytes(), "index.json")
    spec = {
        "root": str(folder),
        "folder": "pcr",
        "group": group,
        "epochs": 1,
        "bandwidth_mib_per_s": mib_per_s,
        "seek_ms": seek_ms,
    }
    bytes_s = index.epoch_bytes(group) / MIB / mib_per_s
    with head_device(tmp_path, mib_per_s, seek_ms) as address:
        compare(
            "head_epochs.csv",
            {"bandwidth_mib_per_s": mib_per_s, "seek_ms": seek_ms, "group": group},
            lambda: epoch_s(spec | {"throttled": False, "head": address}),
            lambda: epoch_s(spec | {"throttled": True}),
            {
                "bytes_over_bandwidth_s": bytes_s,
                "seeks_and_bytes_s": bytes_s + len(index.records) * seek_ms / 1e3,
            },
        )


def epoch_s(spec: dict[str, Any]) -> float:
    """Return the seconds of an epoch in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(spec)],
        capture_output=True,
        text=True,
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["num_images"] == NUM_IMAGES
    return told["seconds"]
