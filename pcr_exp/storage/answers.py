"""What an answer to a range request may be: of the one object, as it lies there, and no longer than asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pcr_exp.errors import StorageError
from pcr_exp.storage import failures

_AS_IT_LIES = ("", "identity", "aws-chunked")
"""Encodings that change no byte; stores keep the last from how an object was sent to them."""
_PAGE_STARTS = (b"<!doctype html", b"<html")


class SeenTags:
    """The ETag of each file at its first read: another one later means another content. Thread safe."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}
        self._lock = threading.Lock()

    def require_same(self, where: str, tag: str | None) -> None:
        """Remember the tag that an answer came with, if it has one.

        Raises:
            StorageError: the file was replaced since its first read: records of two encodes would be mixed.
        """
        if tag is None:
            return
        with self._lock:
            first = self._tags.setdefault(where, tag)
        if first != tag:
            raise StorageError(
                f"{where} was replaced while it was in use: its ETag is {tag}, at its first read "
                f"it was {first}. Records must not change under a run: go on when nobody writes there."
            )

    def forget(self, where: str) -> None:
        """It is about to be replaced by this process itself."""
        self._tags.pop(where, None)


def require_record(where: str, headers: Mapping[Any, Any], sent_on: str = "") -> None:
    """Look at an answer's Content-Type and Content-Encoding, before its body is read.

    Raises:
        StorageError: it is a web page, or compressed.
    """
    if str(headers.get("Content-Type", "")).lower().startswith("text/html"):
        raise failures.web_page(where, sent_on)
    encoding = str(headers.get("Content-Encoding", ""))
    if encoding.lower() not in _AS_IT_LIES:
        raise failures.encoded(where, encoding)


def require_no_page(where: str, start: bytes, sent_on: str = "") -> None:
    """Raise StorageError if a file that begins so is a web page, whatever its type is said to be."""
    if start[:64].lstrip().lower().startswith(_PAGE_STARTS):
        raise failures.web_page(where, sent_on)


class Body:
    """The body of an answer as it comes, which may have `length` bytes and no more."""

    def __init__(self, where: str, length: int) -> None:
        self._where = where
        self._length = length
        self._parts: list[Any] = []
        self._num_bytes = 0

    def add(self, part: Any) -> None:
        """Take the next bytes. Raises StorageError when there are too many: nothing is to be read then."""
        self._num_bytes += len(part)
        if self._num_bytes > self._length:
            raise failures.too_long(self._where, self._length)
        self._parts.append(part)

    def whole(self, *, at_start: bool) -> bytes:
        """All that came. Raises StorageError if it is a file's beginning (`at_start`), and a web page's."""
        data = b"".join(self._parts)
        if at_start:
            require_no_page(self._where, data)
        return data
