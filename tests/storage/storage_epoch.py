"""Run as a program: the loading of training epochs, timed from the first request to the last batch.

Its argument is a JSON object: `root`, `folder`, `group` and `epochs` say what is read; `bandwidth_mib_per_s`
and `latency_ms` are what the loader is told of the storage, and what our throttle enforces if `throttled`;
`cgroup` is a folder of limits of the kernel to read under; `drop` are files to read cold. Prints JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.storage import StorageConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.policy import StaticScan
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.open import open_storage
from pcr_exp.storage.page_cache import drop


def read_epochs(spec: dict[str, Any]) -> dict[str, Any]:
    """Seconds, images and bytes of some epochs, which are one stream."""
    config = StorageConfig(
        name="validation", bandwidth_mib_per_s=spec["bandwidth_mib_per_s"], latency_ms=spec["latency_ms"]
    )
    limits = config if spec["throttled"] else StorageConfig(name="unlimited")
    storage = CountingStorage(open_storage(spec["root"], limits))
    records = RecordSet(storage, spec["folder"])
    loader = RecordLoader(
        records,
        StaticScan(spec["group"]),
        LoaderConfig(num_workers=1),
        transform=TrainTransform(64, AugmentConfig()),
        label="number",
        batch_size=16,
        seed=0,
        shuffle=True,
        storage_config=config,
    )
    kept = drop(Path(path) for path in spec.get("drop", []))
    if spec.get("cgroup"):
        Path(spec["cgroup"], "cgroup.procs").write_text("0")
    bytes_before = storage.bytes_read
    started_s = time.perf_counter()
    with loader:
        num_images = sum(len(batch.labels) for batch in loader.batches(0, 0, spec["epochs"]))
    return {
        "seconds": time.perf_counter() - started_s,
        "num_images": num_images,
        "num_bytes": storage.bytes_read - bytes_before,
        "kept": {str(path): reason for path, reason in kept.items()},
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(read_epochs(json.loads(sys.argv[1]))))
