"""Range reads of anything that fsspec supports: hdfs://, memory://, file://, s3:// without obstore, ..."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import fsspec

from pcr_exp.config.credentials import HTTP_AUTHORIZATION
from pcr_exp.errors import StorageError
from pcr_exp.redaction import redacted_text
from pcr_exp.storage import failures
from pcr_exp.storage.failures import Body, SeenTags, require_record
from pcr_exp.storage.protocol import Counts, Storage

if TYPE_CHECKING:
    from pcr_exp.storage.retry import Retrying


CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""A request fails if nothing arrives for this long. If bytes arrive, it may take as long as it needs."""
_MAX_REDIRECTS = 10
_SUCCESSES = (200, 203, 206)
_LOCAL_SCHEMES = ("file://", "local://", "memory://")
_WANTED_SCHEMES = "s3://, gs://, az://, http://, https:// or another that fsspec knows"
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416

Answer = TypeVar("Answer")


class FsspecStorage(Storage):
    """Files below an fsspec address. Every read is one range request for exactly the bytes needed.

    Over HTTP, no more than that is read, a changed ETag is an error, and requests that failed in transit are
    retried (`storage.retry`). Other drivers read whatever the server sends, and give no ETags. Those of s3://
    and gs:// retry by themselves: botocore and s3fs five times, gcsfs six.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`options` are the driver's, such as s3fs' `endpoint_url`, besides its environment variables.

        Raises StorageError if fsspec does not know the scheme, or its driver is not installed or fails.
        """
        self.url = url.rstrip("/")
        self.is_remote = not self.url.startswith(_LOCAL_SCHEMES)
        self._retrying: Retrying | None = None
        self._tags = SeenTags()
        try:
            if self.url.startswith(("http://", "https://")):
                from pcr_exp.storage.retry import Retrying

                self._retrying = Retrying()
            own = _http_options(self.url) if self._retrying is not None else {}
            self._filesystem, root = fsspec.core.url_to_fs(self.url, **own, **(options or {}))
        except ImportError as error:
            raise StorageError(
                f"{url} needs a driver that is not installed: {error}. "
                "`pip install 'pcr-exp[remote]'` installs those for http://, s3:// and gs://."
            ) from error
        # Some drivers connect immediately, and each raises errors of its own.
        except Exception as error:
            scheme = self.url.partition("://")[0]
            raise StorageError(
                f"{url} cannot be opened by fsspec's driver of {scheme}:// ({failures.in_short(error)}). "
                f"Wanted a local folder, or an address of {_WANTED_SCHEMES}."
            ) from error
        self._root = root.rstrip("/")

    def counts(self) -> Counts:
        """Return the number of retries, which are requests too; zero for drivers that retry by themselves."""
        num_retries = 0 if self._retrying is None else self._retrying.num_retries
        return Counts(num_retries, num_retries)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes `[offset, offset + length)` of a file; fewer at its end.

        Raises:
            StorageError: the file is missing, the request failed (several times, if that may be temporary),
                or the server does not support ranges, or sends too many bytes, a web page or compressed data.
            ReadCancelledError: `interruptible`'s event was set before a retry.
        """
        if length == 0:
            return b""
        file = f"{self._root}/{path}"
        try:
            if self._retrying is not None:
                return self._ask(lambda: self._read_over_http(file, offset, length), path)
            data: bytes = self._filesystem.cat_file(file, start=offset, end=offset + length)
        except StorageError:
            raise
        # Drivers raise errors of their own libraries (aiohttp, botocore, ...) with no common base.
        except Exception as error:
            if getattr(error, "status", None) == _RANGE_NOT_SATISFIABLE:
                return b""  # HTTP's answer if a file ends before `offset`
            raise self._unreadable(path, error) from error
        if len(data) > length:
            raise failures.too_long(f"{self.url}/{path}", length)
        return data

    def size(self, path: str) -> int:
        """Return a file's length in bytes.

        Raises:
            StorageError: as `read`, or the server does not report a size.
            ReadCancelledError: as `read`.
        """
        try:
            size = self._ask(lambda: self._filesystem.size(f"{self._root}/{path}"), path)
        except StorageError:
            raise
        except Exception as error:
            raise self._unreadable(path, error) from error
        if size is None:
            raise failures.no_length(f"{self.url}/{path}")
        return size

    def _ask(self, attempt: Callable[[], Answer], path: str) -> Answer:
        where = redacted_text(f"{self.url}/{path}")
        return attempt() if self._retrying is None else self._retrying.call(attempt, where)

    def _read_over_http(self, url: str, offset: int, length: int) -> bytes:
        """Read in the driver's thread, with its session. The driver itself would read answers to the end."""
        found: bytes = fsspec.asyn.sync(self._filesystem.loop, self._receive, url, offset, length)
        return found

    async def _receive(self, url: str, offset: int, length: int) -> bytes:
        session = await self._filesystem.set_session()
        settings = {"max_redirects": _MAX_REDIRECTS, **self._filesystem.kwargs}
        settings["headers"] = {
            **settings.get("headers", {}),
            "Range": f"bytes={offset}-{offset + length - 1}",
        }
        async with session.get(self._filesystem.encode_url(url), **settings) as answer:
            answer.raise_for_status()
            if not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                answer.close()
                raise failures.other_range(url)
            self._tags.require_same(url, answer.headers.get("ETag"))
            body = Body(url, length)
            try:
                async for part in answer.content.iter_any():
                    body.add(part)
            except StorageError:
                answer.close()  # do not wait for the rest
                raise
        return body.whole(at_start=offset == 0)

    def _unreadable(self, path: str, error: Exception) -> StorageError:
        where = f"{self.url}/{path}"
        if self._retrying is not None:
            return _over_http(where, error)
        if isinstance(error, FileNotFoundError):
            return failures.missing(where)
        if type(error).__name__ == "NoCredentialsError":  # botocore's
            return failures.no_credentials(where)
        if isinstance(error, PermissionError):
            return failures.refused(where, None)
        return failures.other(where, error)

    def __str__(self) -> str:
        return redacted_text(self.url)


def _over_http(where: str, error: Exception) -> StorageError:
    import aiohttp

    from pcr_exp.storage.retry import is_refused, is_unknown_name, last_failure, reason_of

    last, often = last_failure(error)
    reason = reason_of(last)
    status = getattr(reason, "status", None)
    if isinstance(reason, StorageError):
        return reason
    if isinstance(reason, FileNotFoundError) or status == 404:
        return failures.missing(where)
    if status in (401, 403):
        return failures.refused(where, status)
    if isinstance(reason, aiohttp.TooManyRedirects):
        return failures.sent_around(where)
    if is_unknown_name(reason):
        return failures.unknown_name(where)
    if is_refused(reason):
        return failures.nobody_listens(where, often)
    if isinstance(reason, TimeoutError):
        return failures.silent(where, often)
    return failures.other(where, reason, often)


def request_headers(url: str) -> dict[str, str]:
    """Return the headers of every request: for uncompressed bytes and, over http, the credentials."""
    # With compression, a range would refer to other bytes than those requested.
    headers = {"Accept-Encoding": "identity"}
    authorization = os.environ.get(HTTP_AUTHORIZATION)
    if not url.startswith(("http://", "https://")):
        return headers
    address = urlsplit(url)
    if address.username is not None:
        login = f"{unquote(address.username)}:{unquote(address.password or '')}"
        authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
    return headers | ({"Authorization": authorization} if authorization else {})


def _http_options(url: str) -> dict[str, Any]:
    """Options for fsspec's driver of http:// and https://."""

    async def open_session(**settings: Any) -> Any:
        import aiohttp

        tracing = aiohttp.TraceConfig()
        tracing.on_request_end.append(_require_records)
        headers = request_headers(url) | dict(settings.pop("headers", None) or {})
        if urlsplit(url).username is not None:
            headers.pop("Authorization")  # aiohttp takes it from the address itself
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S
            ),
            headers=headers,
            trace_configs=[tracing],
            **settings,
        )

    return {"get_client": open_session, "skip_instance_cache": True}


async def _require_records(_session: Any, _context: SimpleNamespace, request: Any) -> None:
    # Called when the answer's headers arrive, before a file that is sent instead of a range is downloaded.
    answer = request.response
    if answer.status not in _SUCCESSES:
        return
    try:
        asked = answer.history[0].url if answer.history else request.url
        require_record(str(asked), answer.headers, str(answer.url) if answer.history else "")
        if "Range" in request.headers and answer.status != _PARTIAL_CONTENT:
            raise failures.no_ranges(str(request.url))
    except StorageError:
        answer.close()
        raise
