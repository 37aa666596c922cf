"""Run as a program: the loading of training epochs, timed from the first request to the last batch.

Its argument is a JSON object: `root`, `folder`, `group` and `epochs` say what is read; `bandwidth_mib_per_s`
and `latency_ms` are what the loader is told of the storage, and what our throttle enforces if `throttled`;
`cgroup` is a folder of limits of the kernel to read under; `drop` are files to read cold. Prints JSON.
"""

import ctypes
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.storage import StorageConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.policy import StaticScan
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.records.reader import RangeReader, RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.open import open_storage
from pcr_exp.storage.page_cache import drop

_CURRENT = 1
_ON_FAULT = 4
"""MCL_CURRENT and MCL_ONFAULT of Linux's <sys/mman.h>."""


def read_epochs(spec: dict[str, Any]) -> dict[str, Any]:
    """Seconds, images and bytes of some epochs, which are one stream."""
    config = StorageConfig(
        name="validation", bandwidth_mib_per_s=spec["bandwidth_mib_per_s"], latency_ms=spec["latency_ms"]
    )
    unlimited = StorageConfig(name="unlimited")
    cold = [Path(path) for path in spec.get("drop", [])]
    if cold:
        run(loader_of(open_storage(spec["root"], unlimited), spec, unlimited, num_workers=0), 1)
        keep_programs_in_memory()
    storage = CountingStorage(open_storage(spec["root"], config if spec["throttled"] else unlimited))
    loader = loader_of(storage, spec, config, num_workers=1)
    kept = drop(cold)
    bytes_before = storage.bytes_read
    with within(spec.get("cgroup")):
        started_s = time.perf_counter()
        num_images = run(loader, spec["epochs"])
        seconds = time.perf_counter() - started_s
    return {
        "seconds": seconds,
        "num_images": num_images,
        "num_bytes": storage.bytes_read - bytes_before,
        "kept": {str(path): reason for path, reason in kept.items()},
    }


@contextmanager
def within(cgroup: str | None) -> Iterator[None]:
    """Be limited by the kernel for as long as the clock runs: the end of a process may read, too."""
    if cgroup:
        Path(cgroup, "cgroup.procs").write_text("0")
    yield
    if cgroup:
        Path(cgroup).parent.joinpath("cgroup.procs").write_text("0")


def loader_of(
    storage: RangeReader, spec: dict[str, Any], config: StorageConfig, num_workers: int
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
    """Images of so many epochs."""
    with loader:
        return sum(len(batch.labels) for batch in loader.batches(0, 0, num_epochs))


def keep_programs_in_memory() -> None:
    """Keep the pages of libraries that have been used: a disk that is measured must not read them again."""
    if ctypes.CDLL(None, use_errno=True).mlockall(_CURRENT | _ON_FAULT) != 0:
        raise OSError(ctypes.get_errno(), "mlockall failed: run it as root")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(read_epochs(json.loads(sys.argv[1]))))
