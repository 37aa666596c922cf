"""Range reads of whatever fsspec reaches: s3://, gs://, http://, memory://, file://, ..."""

from __future__ import annotations

import fsspec

from pcr_exp.errors import StorageError


class FsspecStorage:
    """Files below an fsspec address. Every read is one ranged request."""

    def __init__(self, url: str) -> None:
        """Raises StorageError if the address is unknown to fsspec or its driver is not installed."""
        self.url = url.rstrip("/")
        try:
            self._filesystem, root = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            raise StorageError(f"{url} needs a driver that is not installed: {error}.") from error
        except ValueError as error:
            raise StorageError(f"{url} is no address that fsspec can open: {error}.") from error
        self._root = root.rstrip("/")

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)` of a file; fewer at its end.

        Raises:
            StorageError: the file is missing, or the request failed.
        """
        if length == 0:
            return b""
        try:
            return self._filesystem.cat_file(f"{self._root}/{path}", start=offset, end=offset + length)
        # Drivers raise errors of their own libraries (aiohttp, botocore, ...) with no common base.
        except Exception as error:
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
        if isinstance(error, FileNotFoundError):
            return StorageError(f"{self.url}/{path} does not exist. Check records.root.")
        return StorageError(f"{self.url}/{path} cannot be read: {type(error).__name__}: {error}.")
