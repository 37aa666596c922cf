"""What of the training records lies in memory when a session begins, and beginning without it."""

from __future__ import annotations

import logging
from pathlib import Path

from pcr_exp.config.runners import TrainConfig
from pcr_exp.runs.data import RunData
from pcr_exp.storage.page_cache import drop, resident_share_of

log = logging.getLogger(__name__)


def settle_page_cache(config: TrainConfig, data: RunData) -> float | None:
    """Drop the training records from the page cache if `storage.cold_cache`, and log what it holds then.

    Returns:
        The share (0 to 1) of the records' bytes that the page cache holds; None if that cannot be known.
    """
    files = _record_files(config, data)
    if config.storage.cold_cache:
        _drop(files, config.records.root)
    cached = resident_share_of(files) if files else None
    log.info("page cache: %s of the training records", "unknown share" if cached is None else f"{cached:.0%}")
    return cached


def _record_files(config: TrainConfig, data: RunData) -> list[Path]:
    """None on other machines: what those keep in memory is out of reach."""
    if "://" in config.records.root:
        return []
    folder = Path(config.records.root) / data.train.folder
    return [folder / record.file for record in data.train.index.records]


def _drop(files: list[Path], root: str) -> None:
    if not files:
        log.warning("storage.cold_cache=true: nothing was dropped, records.root=%s is no local folder", root)
        return
    kept = drop(files)
    log.info("storage.cold_cache=true: %d of %d record files dropped", len(files) - len(kept), len(files))
    if kept:
        path, reason = next(iter(kept.items()))
        log.warning("storage.cold_cache=true: %d files could not be; %s: %s", len(kept), path, reason)
