"""The only place that turns an address into a storage. Each process opens its own."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcr_exp.config.credentials import is_unsigned
from pcr_exp.config.loader import ChangingStorageConfig, StorageConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.errors import StorageError
from pcr_exp.redaction import redacted_text
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.hub import SCHEME as HUB
from pcr_exp.storage.hub import HubStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.objects import SCHEMES, ObjectStorage, forked, usable
from pcr_exp.storage.protocol import Storage, Wrapped
from pcr_exp.storage.remote import FsspecStorage
from pcr_exp.storage.throttle import ChangingStorage, Throttle, ThrottledStorage


def open_storage(
    root: str,
    config: StorageConfig,
    *,
    bucket: str | Path | None = None,
    client: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Storage:
    """Open the storage at a local folder or address (`scheme://...`), throttled if `config` has limits.

    Args:
        root: The folder or address.
        config: The limits.
        client: `records.storage_client`, for addresses.
        options: `records.storage_options`, for addresses.
        bucket: File with the throttle's state. Ranks of a host that pass the same path share its bandwidth.

    Raises:
        StorageError: the address cannot be opened, or the throttle at `bucket` enforces other limits.
    """
    inner: Storage = open_remote(root, client, options) if "://" in root else LocalStorage(root)
    return throttled(inner, config, bucket)


def throttled(inner: Storage, config: StorageConfig, bucket: str | Path | None = None) -> Storage:
    """Return a storage slowed to the limits in `config`; itself if it has none. Raises as `open_storage`."""
    if not is_limited(config):
        return inner
    throttle = Throttle.create(config, bucket)
    if isinstance(config, ChangingStorageConfig):
        return ChangingStorage(inner, throttle, config.changes_s, config.shares)
    return ThrottledStorage(inner, throttle)


def open_root(
    records: RecordsConfig, config: StorageConfig | None = None, *, bucket: str | Path | None = None
) -> Storage:
    """Open the storage at `records.root` with the settings of `records`; unthrottled without `config`.

    Raises:
        StorageError: as `open_storage` does.
    """
    return open_storage(
        records.root,
        config or StorageConfig(name="unlimited"),
        bucket=bucket,
        client=records.storage_client,
        options=records.storage_options,
    )


def open_remote(
    url: str, client: str = "auto", options: Mapping[str, Any] | None = None
) -> ObjectStorage | HubStorage | FsspecStorage:
    """Open the storage at an address through obstore, huggingface_hub or fsspec.

    `auto` means huggingface_hub for hf://. Otherwise it means obstore, if that knows the scheme, is installed
    and may be used in this process, else fsspec.

    Raises:
        StorageError: the address cannot be opened, or obstore was requested and does not know its scheme. Or
            this process was forked from one that used obstore, and fsspec cannot open the address as it did.
    """
    if client == "auto" and url.startswith(HUB):
        if options:
            raise StorageError(f"{url}: records.storage_options={dict(options)}: wanted none for hf://.")
        return HubStorage(url)
    known = url.startswith(SCHEMES)
    if client == "obstore" and not known:
        raise StorageError(
            f"{url}: records.storage_client=obstore supports only {', '.join(SCHEMES)}. Set it "
            "to auto or fsspec."
        )
    if client == "obstore" or (client == "auto" and known and _has_obstore()):
        if client == "obstore" or usable():
            return ObjectStorage(url, options)
        if options or is_unsigned(url):
            raise forked(url)
        try:
            return FsspecStorage(url)
        except StorageError as error:
            raise forked(url) from error
    return FsspecStorage(url, options)


def _has_obstore() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("obstore", "tenacity"))


def is_limited(config: StorageConfig) -> bool:
    """Whether the config limits storage in any way."""
    limits = (config.bandwidth_mib_per_s, config.latency_ms, config.seek_ms, config.requests_per_s)
    return any(limits)


class PerProcessStorage(Wrapped):
    """Unthrottled, counting storage at an address. Only the address is pickled, no open storage.

    Connections, and the threads of fsspec drivers, do not survive a fork, so a child process opens its own.
    """

    def __init__(self, root: str) -> None:
        """`root`: a local folder or an address. Raises StorageError if it cannot be opened."""
        self.root = root
        self._opened: tuple[int, Storage] | None = None
        super().__init__(self.inner)

    @property
    def inner(self) -> Storage:
        """The storage of this process, opened if necessary."""
        if self._opened is None or self._opened[0] != os.getpid():
            storage = open_storage(self.root, StorageConfig(name="unlimited"))
            self._opened = os.getpid(), CountingStorage(storage)
        return self._opened[1]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_opened": None, "_inner": None}

    def __str__(self) -> str:
        return redacted_text(self.root)
