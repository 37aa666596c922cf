"""Readable errors for failed requests, and checks that answers are what was requested.

Messages are the same whichever client made the request. The answer to a range request must come from the one
object, as stored, and be no longer than requested.

`where` is the address of a file. `often` tells how often it was requested: ` It was tried 7 times in 32.1 s.`
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pcr_exp.config.credentials import how_to_give_credentials
from pcr_exp.errors import MissingFileError, RefusedError, StorageError

_CHECK = "Check the address"
_MAX_SHOWN = 300
_PHRASES = {401: "401 Unauthorized: it needs credentials", 403: "403 Forbidden"}


def often(num_attempts: int, elapsed_s: float, asked_s: float | None) -> str:
    """Describe how often a request was made, and how long the server asks to wait."""
    asked = f" The server asks to wait {asked_s:.0f} s." if asked_s else ""
    return f" It was tried {num_attempts} times in {elapsed_s:.1f} s.{asked}"


def missing(where: str) -> MissingFileError:
    """Error for a file that the server does not have."""
    return MissingFileError(f"{where} does not exist. {_CHECK}.")


def refused(where: str, status: int | None) -> RefusedError:
    """Error for a file that the server does not let us read."""
    what = _PHRASES.get(status, str(status)) if status is not None else "access denied"
    return RefusedError(
        f"{where}: the server refuses access ({what}). {_CHECK}, and the credentials. "
        f"{how_to_give_credentials(where)}"
    )


def no_credentials(where: str) -> StorageError:
    """Error if the client found no credentials, and the machine's cloud gave none."""
    return StorageError(
        f"{where} cannot be read: no credentials were found, neither in the environment nor from a cloud "
        f"that this machine is part of. {how_to_give_credentials(where)}"
    )


def unknown_name(where: str) -> StorageError:
    """Error for a server name that DNS does not know."""
    return StorageError(f"{where} cannot be read: its server name does not resolve (DNS). {_CHECK}.")


def untrusted(where: str) -> StorageError:
    """Error for a TLS certificate from an unknown authority, such as a company's proxy."""
    return StorageError(
        f"{where} cannot be read: its TLS certificate is not trusted. {_CHECK}, and that this machine knows "
        "the authority that signed the certificate."
    )


def nobody_listens(where: str, often: str = "") -> StorageError:
    """Error for a closed port of a reachable machine."""
    return StorageError(
        f"{where} cannot be read: nothing listens there (connection refused).{often} {_CHECK}, and "
        "whether the server is running."
    )


def silent(where: str, often: str = "") -> StorageError:
    """Error for an answer that did not come in time."""
    return StorageError(f"{where} cannot be read: the server does not answer (timed out).{often}")


def sent_around(where: str) -> StorageError:
    """Error for endless redirects."""
    return StorageError(
        f"{where} cannot be read: the server redirects more than ten times, perhaps in a loop. Open the "
        f"address in a browser. {_CHECK}."
    )


def no_ranges(where: str) -> StorageError:
    """Error for a whole file that came instead of a range."""
    return StorageError(
        f"{where}: the server ignores range requests and sends whole files. Records need a server that "
        "answers them with 206 (nginx, S3, ...); Python's http.server does not."
    )


def other_range(where: str) -> StorageError:
    """Error for a range other than the requested one."""
    return StorageError(
        f"{where}: the server sent a different range from the one requested (see its Content-Range). "
        "Check for a proxy or a cache in between that mixes up ranges."
    )


def too_long(where: str, length: int) -> StorageError:
    """Error for an answer longer than requested, whose rest was not read."""
    return StorageError(
        f"{where}: the server sends more than the {length} requested bytes, so reading stopped. "
        "It does not answer range requests as HTTP requires. Use another server (nginx, S3, ...)."
    )


def no_length(where: str) -> StorageError:
    """Error for a missing size of the file or the answer."""
    return StorageError(f"{where}: the server does not state its size (no Content-Length).")


def encoded(where: str, encoding: str) -> StorageError:
    """Error for a compressed body, which was not requested."""
    return StorageError(
        f"{where}: the server sends it compressed (Content-Encoding: {encoding[:40]}), which was not "
        "requested. Ranges of compressed data hold other bytes. Configure the server to send record files "
        "uncompressed."
    )


def web_page(where: str, sent_on: str = "") -> StorageError:
    """Error for HTML in place of a record; `sent_on` is the address that a redirect led to."""
    redirected = f" (after a redirect to {sent_on})" if sent_on else ""
    return StorageError(
        f"{where}: the server answers with a web page instead of a record{redirected}. It may be a login "
        f"page or describe an error. Open the address in a browser. {_CHECK}."
    )


def other(where: str, error: BaseException, often: str = "") -> StorageError:
    """Error for any other failure, as the client names it."""
    return StorageError(f"{where} cannot be read: {in_short(error)}.{often}")


def in_short(error: BaseException) -> str:
    """Shorten a client's error to one line. Some quote what the server sent, and some their own state."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text[:_MAX_SHOWN]}{'...' if len(text) > _MAX_SHOWN else ''}"


_NOT_ENCODED = ("", "identity", "aws-chunked")
"""Encodings that change no byte. Stores keep the last one from how an object was uploaded."""
_PAGE_STARTS = (b"<!doctype html", b"<html")


class SeenTags:
    """The ETag of each file at its first read. Another one later means changed content. Thread-safe."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}
        self._lock = threading.Lock()

    def require_same(self, where: str, tag: str | None) -> None:
        """Remember an answer's tag, or compare it with the remembered one. None is ignored.

        Raises:
            StorageError: the file was replaced since its first read, so records of two encodes would mix.
        """
        if tag is None:
            return
        with self._lock:
            first = self._tags.setdefault(where, tag)
        if first != tag:
            raise StorageError(
                f"{where} was replaced while it was in use: its ETag is {tag}, at its first read "
                f"it was {first}. Records must not change during a run: resume once nobody writes there."
            )

    def forget(self, where: str) -> None:
        """Forget a file's tag, because this process is about to replace the file."""
        self._tags.pop(where, None)


def require_record(where: str, headers: Mapping[Any, Any], sent_on: str = "") -> None:
    """Check an answer's Content-Type and Content-Encoding, before its body is read.

    Raises:
        StorageError: it is a web page, or compressed.
    """
    if str(headers.get("Content-Type", "")).lower().startswith("text/html"):
        raise web_page(where, sent_on)
    encoding = str(headers.get("Content-Encoding", ""))
    if encoding.lower() not in _NOT_ENCODED:
        raise encoded(where, encoding)


def require_no_page(where: str, start: bytes, sent_on: str = "") -> None:
    """Raise StorageError if a file that begins with `start` is a web page, whatever its Content-Type."""
    if start[:64].lstrip().lower().startswith(_PAGE_STARTS):
        raise web_page(where, sent_on)


class Body:
    """The body of an answer as it arrives. It may have at most `length` bytes."""

    def __init__(self, where: str, length: int) -> None:
        self._where = where
        self._length = length
        self._parts: list[Any] = []
        self._num_bytes = 0

    def add(self, part: Any) -> None:
        """Append the next bytes. Raises StorageError if there are too many; then stop reading."""
        self._num_bytes += len(part)
        if self._num_bytes > self._length:
            raise too_long(self._where, self._length)
        self._parts.append(part)

    def whole(self, *, at_start: bool) -> bytes:
        """Return all bytes. Raises StorageError if they begin a file (`at_start`) that is a web page."""
        data = b"".join(self._parts)
        if at_start:
            require_no_page(self._where, data)
        return data
