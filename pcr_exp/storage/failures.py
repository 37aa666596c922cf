"""Requests that failed, in words for people, and answers that are not what was asked for.

The words are the same whichever client made the request. An answer to a range request must be of the one
object, as it lies there, and no longer than asked.

`where` is the address of a file. `often` says how often it was asked for: ` It was tried 7 times in 32.1 s.`
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pcr_exp.config.credentials import how_to_give_credentials
from pcr_exp.errors import MissingFileError, RefusedError, StorageError

_CHECK = "Check the address"
_MAX_SHOWN = 300
_PHRASES = {401: "401 Unauthorized: it wants credentials", 403: "403 Forbidden"}


def often(num_attempts: int, elapsed_s: float, asked_s: float | None) -> str:
    """How often a request was made, and how long the server asks to be left alone."""
    asked = f" The server asks to come back in {asked_s:.0f} s." if asked_s else ""
    return f" It was tried {num_attempts} times in {elapsed_s:.1f} s.{asked}"


def missing(where: str) -> MissingFileError:
    """The server says that there is no such file."""
    return MissingFileError(f"{where} does not exist. {_CHECK}.")


def refused(where: str, status: int | None) -> RefusedError:
    """The server does not let us read it."""
    what = _PHRASES.get(status, str(status)) if status is not None else "access denied"
    return RefusedError(
        f"{where}: the server refuses it ({what}). {_CHECK}, and the credentials. "
        f"{how_to_give_credentials(where)}"
    )


def no_credentials(where: str) -> StorageError:
    """The client found none, and the machine's cloud gave none."""
    return StorageError(
        f"{where} cannot be read: there are no credentials, neither in the environment nor from a cloud that "
        f"this machine is part of. {how_to_give_credentials(where)}"
    )


def unknown_name(where: str) -> StorageError:
    """DNS knows no such server."""
    return StorageError(f"{where} cannot be read: nobody knows a server of this name (DNS). {_CHECK}.")


def nobody_listens(where: str, often: str = "") -> StorageError:
    """The machine is there, and its port is closed."""
    return StorageError(
        f"{where} cannot be read: nobody listens there (connection refused).{often} {_CHECK}, and whether "
        "the server runs."
    )


def silent(where: str, often: str = "") -> StorageError:
    """No answer came in time."""
    return StorageError(f"{where} cannot be read: the server does not answer (timed out).{often}")


def sent_around(where: str) -> StorageError:
    """Redirects without an end."""
    return StorageError(
        f"{where} cannot be read: the server redirects more than ten times, perhaps in a circle. Open the "
        f"address in a browser. {_CHECK}."
    )


def no_ranges(where: str) -> StorageError:
    """A whole file came where a range was asked for."""
    return StorageError(
        f"{where}: the server ignores range requests and sends whole files. Records need a server that "
        "answers them with 206 (nginx, S3, ...); Python's http.server does not."
    )


def other_range(where: str) -> StorageError:
    """Another range came than the one that was asked for."""
    return StorageError(
        f"{where}: the server answers with other bytes than it was asked for (its Content-Range is another). "
        "Look at what lies between: a proxy or a cache that mixes ranges."
    )


def too_long(where: str, length: int) -> StorageError:
    """More came than was asked for; the rest was left unread."""
    return StorageError(
        f"{where}: the server sends more than the {length} bytes that it was asked for, and was not read on. "
        "It does not answer range requests as HTTP wants it: records need another (nginx, S3, ...)."
    )


def no_length(where: str) -> StorageError:
    """The size of the file or of the answer is not told."""
    return StorageError(f"{where}: the server does not tell its size (no Content-Length).")


def encoded(where: str, encoding: str) -> StorageError:
    """The body is compressed, and nobody asked for that."""
    return StorageError(
        f"{where}: the server sends it compressed (Content-Encoding: {encoding[:40]}), which was not asked "
        "for: ranges of it would be of other bytes. Let it send files of records as they are."
    )


def web_page(where: str, sent_on: str = "") -> StorageError:
    """HTML came in place of a record; `sent_on` is the address that a redirect led to."""
    redirected = f" (it was sent on to {sent_on})" if sent_on else ""
    return StorageError(
        f"{where}: the server answers with a web page and no record{redirected}: a login page, or one that "
        f"says what is wrong. Open the address in a browser. {_CHECK}."
    )


def other(where: str, error: BaseException, often: str = "") -> StorageError:
    """Anything else, as the client calls it."""
    return StorageError(f"{where} cannot be read: {in_short(error)}.{often}")


def in_short(error: BaseException) -> str:
    """A client's error in a line: some quote what the server sent, and some their own state after it."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text[:_MAX_SHOWN]}{'...' if len(text) > _MAX_SHOWN else ''}"


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
        raise web_page(where, sent_on)
    encoding = str(headers.get("Content-Encoding", ""))
    if encoding.lower() not in _AS_IT_LIES:
        raise encoded(where, encoding)


def require_no_page(where: str, start: bytes, sent_on: str = "") -> None:
    """Raise StorageError if a file that begins so is a web page, whatever its type is said to be."""
    if start[:64].lstrip().lower().startswith(_PAGE_STARTS):
        raise web_page(where, sent_on)


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
            raise too_long(self._where, self._length)
        self._parts.append(part)

    def whole(self, *, at_start: bool) -> bytes:
        """All that came. Raises StorageError if it is a file's beginning (`at_start`), and a web page's."""
        data = b"".join(self._parts)
        if at_start:
            require_no_page(self._where, data)
        return data
