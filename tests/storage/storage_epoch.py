"""Run as a program: load training epochs, timed from the first request to the last batch.

Its argument is a JSON object. `root`, `folder`, `group` and `epochs` select what is read. The loader gets
`bandwidth_mib_per_s`, `latency_ms` and `seek_ms` as storage settings, and our throttle enforces them if
`throttled`. `head` is the address of a simulated disk head, `cgroup` the folder of a control group that
limits reads. `drop` are files to read cold, `besides` files that the process itself reads meanwhile. Prints
JSON.
"""

import ctypes
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from storage_head_device import HeadStorage

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.open import open_storage
from pcr_exp.storage.protocol import Storage, Wrapped
from pcr_exp.system.machine import drop

_CURRENT = 1
_ON_FAULT = 4
"""MCL_CURRENT and MCL_ONFAULT of Linux's <sys/mman.h>."""


def read_epochs(spec: dict[str, Any]) -> dict[str, Any]:
    """Return seconds, images and bytes of epochs in one stream, and the files that could not be dropped."""
    keys = ("bandwidth_mib_per_s", "latency_ms", "seek_ms")
    config = StorageConfig(name="validation", **{key: spec[key] for key in keys if key in spec})
    unlimited = StorageConfig(name="unlimited")
    cold = [Path(path) for path in spec.get("drop", [])]
    if cold:
        run(loader_of(open_storage(spec["root"], unlimited), spec, unlimited, num_workers=0), 1)
        keep_programs_in_memory()
    inner = open_storage(spec["root"], config if spec["throttled"] else unlimited)
    storage = CountingStorage(HeadStorage(inner, spec["head"]) if spec.get("head") else inner)
    limited = LimitedStorage(storage)
    loader = loader_of(limited, spec, config, num_workers=1)
    kept = drop(cold)
    bytes_before = storage.bytes_read
    if spec.get("cgroup"):
        limited.tasks = Path(spec["cgroup"], "tasks")
    besides = [Path(path) for path in spec.get("besides", [])]
    reading = threading.Thread(target=lambda: [path.read_bytes() for path in besides])
    started_s = time.perf_counter()
    reading.start()
    num_images = run(loader, spec["epochs"])
    seconds = time.perf_counter() - started_s
    reading.join()
    return {
        "seconds": seconds,
        "num_images": num_images,
        "num_bytes": storage.bytes_read - bytes_before,
        "kept": {str(path): reason for path, reason in kept.items()},
    }


class LimitedStorage(Wrapped):
    """Moves the threads that read from it, and no others, to a control group of the kernel.

    A process also reads modules on first use, and library pages that were evicted. On a disk of 1 MiB/s this
    took seconds on some machines and not on others, so limiting a whole process would not measure the
    reading of records alone.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.reads_many = False
        self.tasks: Path | None = None
        """The group's list of threads; None: no thread is limited yet."""
        self._this_thread = threading.local()

    def read(self, path: str, offset: int, length: int) -> bytes:
        if self.tasks is not None and not hasattr(self._this_thread, "limited"):
            self.tasks.write_text(str(threading.get_native_id()))
            self._this_thread.limited = True
        return super().read(path, offset, length)


def loader_of(
    storage: Storage, spec: dict[str, Any], config: StorageConfig, num_workers: int
) -> RecordLoader:
    return RecordLoader(
        RecordSet(storage, spec["folder"]),
        StaticScan(spec["group"]),
        LoaderConfig(num_workers=num_workers),
        transform=TrainTransform(64, AugmentConfig()),
        label="number",
        batch_size=16,
        seed=0,
        shuffle=True,
        storage_config=config,
    )


def run(loader: RecordLoader, num_epochs: int) -> int:
    """Load the epochs, and return the number of images."""
    with loader:
        return sum(len(batch.labels) for batch in loader.batches(0, 0, num_epochs))


def keep_programs_in_memory() -> None:
    """Lock used library pages in memory, so that a measured disk does not read them again."""
    if ctypes.CDLL(None, use_errno=True).mlockall(_CURRENT | _ON_FAULT) != 0:
        raise OSError(ctypes.get_errno(), "mlockall failed: run it as root")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(read_epochs(json.loads(sys.argv[1]))))
