"""What of the training records lies in memory when a session begins, and beginning without it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcr_exp.config.runners import TrainConfig
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.data import RunData
from pcr_exp.system.page_cache import drop, resident_share_of

log = logging.getLogger(__name__)


def settle_page_cache(config: TrainConfig, data: RunData) -> float | None:
    """Drop the training records from the page cache if `storage.cold_cache`, and log what it holds then.

    Returns:
        The share (0 to 1) of the records' bytes that the page cache holds; None if that cannot be known.
    """
    files = _record_files(config, data.train)
    if config.storage.cold_cache:
        _drop(files, config.records.root)
    cached = resident_share_of(files) if files else None
    log.info("page cache: %s of the training records", "unknown share" if cached is None else f"{cached:.0%}")
    return cached


@contextmanager
def as_found(config: TrainConfig, records: RecordSet, num_images: int) -> Iterator[None]:
    """After the block has read a split's first images, let go of files that were not in memory before."""
    files = []
    for path, record in zip(_record_files(config, records), records.index.records, strict=False):
        if num_images > 0:
            files.append(path)
        num_images -= record.num_samples
    cold = [path for path in files if resident_share_of([path]) == 0]
    try:
        yield
    finally:
        drop(cold)


def _record_files(config: TrainConfig, records: RecordSet) -> list[Path]:
    """Return the records' files, or nothing for records on other machines, whose memory is out of reach."""
    if "://" in config.records.root:
        return []
    folder = Path(config.records.root) / records.folder
    return [folder / record.file for record in records.index.records]


def _drop(files: list[Path], root: str) -> None:
    if not files:
        log.warning("storage.cold_cache=true: nothing was dropped, records.root=%s is no local folder", root)
        return
    kept = drop(files)
    log.info("storage.cold_cache=true: %d of %d record files dropped", len(files) - len(kept), len(files))
    if kept:
        path, reason = next(iter(kept.items()))
        log.warning("storage.cold_cache=true: %d files could not be; %s: %s", len(kept), path, reason)
