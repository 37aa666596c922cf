"""The one place where an address becomes a storage."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.config.storage import ChangingStorageConfig, StorageConfig
from pcr_exp.storage import RangeReader
from pcr_exp.storage.changing import ChangingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.remote import FsspecStorage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage


def open_storage(root: str, config: StorageConfig, *, bucket: str | Path | None = None) -> RangeReader:
    """Storage at a local folder or an fsspec address (`scheme://...`), throttled if `config` limits anything.

    Args:
        bucket: file of the throttle's state; ranks of a host that give the same path share one bandwidth.

    Raises:
        StorageError: the address cannot be opened, or the throttle at `bucket` enforces other limits.
    """
    inner: RangeReader = FsspecStorage(root) if "://" in root else LocalStorage(root)
    if not is_limited(config):
        return inner
    throttle = Throttle.create(config, bucket)
    if isinstance(config, ChangingStorageConfig):
        return ChangingStorage(inner, throttle, config.changes_s, config.shares)
    return ThrottledStorage(inner, throttle)


def is_limited(config: StorageConfig) -> bool:
    """Whether the config slows storage down at all."""
    limits = (config.bandwidth_mib_per_s, config.latency_ms, config.seek_ms, config.requests_per_s)
    return any(limits)
