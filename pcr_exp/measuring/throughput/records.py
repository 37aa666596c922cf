"""This project's loader: PCR records and their baseline, read by `RecordLoader`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pcr_exp.config.scan import scan_of
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import train_transform
from pcr_exp.measuring.throughput.job import Images, Job
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Yield uint8 batches [B, H, W, 3], in one continuous stream over the epochs."""
    scan = scan_of(job.loader)
    records = RecordSet(open_storage(str(folder), job.storage, bucket=job.bucket), scan.encoding)
    loader = RecordLoader(
        records,
        StaticScan(scan.group),
        replace(job.settings, decode=job.decode),
        transform=train_transform(job.crops),
        label=job.label,
        batch_size=job.batch_size,
        seed=job.seed,
        shuffle=True,
        storage_config=job.storage,
    )
    with loader:
        for batch in loader.batches(0, 0, job.num_epochs):
            yield batch.images


def epoch_bytes(folder: Path, loader: str) -> int:
    """Return the bytes that one epoch reads at a scan level: those of all record prefixes."""
    scan = scan_of(loader)
    return RecordSet(LocalStorage(folder), scan.encoding).index.epoch_bytes(scan.group)
