"""Range reads of whatever fsspec reaches: s3://, gs://, http://, memory://, file://, ..."""

from __future__ import annotations

import fsspec

from pcr_exp.errors import StorageError
from pcr_exp.storage.http import http_options

_RANGE_NOT_SATISFIABLE = 416


class FsspecStorage:
    """Files below an fsspec address. Every read is one ranged request, of exactly the bytes asked for."""

    def __init__(self, url: str) -> None:
        """Raises StorageError if the address is unknown to fsspec or its driver is not installed."""
        self.url = url.rstrip("/")
        self._is_http = self.url.startswith(("http://", "https://"))
        try:
            options = http_options() if self._is_http else {}
            self._filesystem, root = fsspec.core.url_to_fs(self.url, **options)
        except ImportError as error:
            raise StorageError(
                f"{url} needs a driver that is not installed: {error}. "
                "`pip install 'pcr-exp[remote]'` brings those of http://, s3:// and gs://."
            ) from error
        except ValueError as error:
            raise StorageError(f"{url} is no address that fsspec can open: {error}.") from error
        self._root = root.rstrip("/")

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)` of a file; fewer at its end.

        Raises:
            StorageError: the file is missing, the request failed, or the server knows no ranges.
        """
        if length == 0:
            return b""
        try:
            return self._filesystem.cat_file(f"{self._root}/{path}", start=offset, end=offset + length)
        except StorageError:
            raise
        # Drivers raise errors of their own libraries (aiohttp, botocore, ...) with no common base.
        except Exception as error:
            if getattr(error, "status", None) == _RANGE_NOT_SATISFIABLE:
                return b""  # how HTTP says that a file ends before `offset`
            raise self._unreadable(path, error) from error

    def size(self, path: str) -> int:
        """Length of a file in bytes.

        Raises:
            StorageError: the file is missing, the request failed, or the server does not tell a size.
        """
        try:
            size = self._filesystem.size(f"{self._root}/{path}")
        except Exception as error:
            raise self._unreadable(path, error) from error
        if size is None:
            raise StorageError(f"{self.url}/{path}: the server does not tell its size.")
        return size

    def _unreadable(self, path: str, error: Exception) -> StorageError:
        where = f"{self.url}/{path}"
        reason: BaseException = error
        if self._is_http and isinstance(error, FileNotFoundError) and error.__cause__ is not None:
            # This driver calls every failure to tell a size a missing file; the cause is what happened.
            reason = error.__cause__
        if isinstance(reason, FileNotFoundError) or getattr(reason, "status", None) == 404:
            return StorageError(f"{where} does not exist. Check records.root.")
        if isinstance(reason, TimeoutError):
            return StorageError(f"{where} cannot be read: the server does not answer (timed out).")
        return StorageError(f"{where} cannot be read: {type(reason).__name__}: {reason}.")

    def __str__(self) -> str:
        return self.url
