"""Range reads of anything that fsspec reaches: hdfs://, memory://, file://, s3:// without obstore, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import fsspec

from pcr_exp.errors import StorageError

if TYPE_CHECKING:
    from pcr_exp.storage.retry import Retrying


CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""A request ends when nothing has come for this long; one that brings bytes may take as long as it needs."""
_SUCCESSES = (200, 203, 206)


_LOCAL_SCHEMES = ("file://", "local://", "memory://")
_WANTED_SCHEMES = "s3://, gs://, az://, http://, https:// or another that fsspec knows"
_RANGE_NOT_SATISFIABLE = 416
_REFUSALS = {
    401: "the server wants credentials (401 Unauthorized)",
    403: "the server refuses it (403 Forbidden)",
}

Answer = TypeVar("Answer")


class FsspecStorage:
    """Files below an fsspec address. Every read is a ranged request of exactly the bytes asked for.

    Over HTTP, a request that failed on its way is made again (`storage.retry`). The drivers of s3:// and
    gs:// do so by themselves: botocore and s3fs five times, gcsfs six times.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`options` are the driver's, such as s3fs' `endpoint_url`, beside its own environment.

        Raises StorageError if fsspec does not know the scheme, or its driver is not installed or refuses.
        """
        self.url = url.rstrip("/")
        self.is_remote = not self.url.startswith(_LOCAL_SCHEMES)
        """Whether what comes may be damaged on its way, and be right when it is read again."""
        self._retrying: Retrying | None = None
        try:
            if self.url.startswith(("http://", "https://")):
                from pcr_exp.storage.retry import Retrying

                self._retrying = Retrying()
            own = http_options() if self._retrying is not None else {}
            self._filesystem, root = fsspec.core.url_to_fs(self.url, **own, **(options or {}))
        except ImportError as error:
            raise StorageError(
                f"{url} needs a driver that is not installed: {error}. "
                "`pip install 'pcr-exp[remote]'` brings those of http://, s3:// and gs://."
            ) from error
        # Some drivers connect at once, and each raises errors of its own.
        except Exception as error:
            scheme = self.url.partition("://")[0]
            raise StorageError(
                f"{url} cannot be opened by fsspec's driver of {scheme}:// ({_named(error)}). Wanted a local "
                f"folder, or an address of {_WANTED_SCHEMES}."
            ) from error
        self._root = root.rstrip("/")

    @property
    def num_retries(self) -> int:
        """Requests that were made again; of drivers that do so themselves, 0."""
        return 0 if self._retrying is None else self._retrying.num_retries

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)` of a file; fewer at its end.

        Raises:
            StorageError: the file is missing, the request failed (several times, where that may pass), the
                server knows no ranges, or what it sends is a web page.
            ReadCancelledError: `interruptible`'s event was set before it was made again.
        """
        if length == 0:
            return b""
        file = f"{self._root}/{path}"
        try:
            return self._ask(lambda: self._filesystem.cat_file(file, start=offset, end=offset + length), path)
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
            StorageError: as `read`, or the server does not tell a size.
            ReadCancelledError: as `read`.
        """
        try:
            size = self._ask(lambda: self._filesystem.size(f"{self._root}/{path}"), path)
        except StorageError:
            raise
        except Exception as error:
            raise self._unreadable(path, error) from error
        if size is None:
            raise StorageError(f"{self.url}/{path}: the server does not tell its size.")
        return size

    def _ask(self, attempt: Callable[[], Answer], path: str) -> Answer:
        return attempt() if self._retrying is None else self._retrying.call(attempt, f"{self.url}/{path}")

    def _unreadable(self, path: str, error: Exception) -> StorageError:
        where = f"{self.url}/{path}"
        if self._retrying is not None:
            return _over_http(where, error)
        if isinstance(error, FileNotFoundError):
            return _missing(where)
        return StorageError(f"{where} cannot be read: {_named(error)}.")

    def __str__(self) -> str:
        return self.url


def _over_http(where: str, error: Exception) -> StorageError:
    from pcr_exp.storage.retry import GaveUpError, is_unknown_name, reason_of, retry_after_s

    often = ""
    reason: BaseException = error
    if isinstance(error, GaveUpError):
        reason = error.error
        often = f" It was tried {error.num_attempts} times in {error.elapsed_s:.1f} s."
    reason = reason_of(reason)
    status = getattr(reason, "status", None)
    if isinstance(reason, StorageError):
        return reason
    if isinstance(reason, FileNotFoundError) or status == 404:
        return _missing(where)
    if status in _REFUSALS:
        return StorageError(
            f"{where} cannot be read: {_REFUSALS[status]}. Check the address, and whether it may be read "
            "from here without a login."
        )
    if is_unknown_name(reason):
        return StorageError(
            f"{where} cannot be read: nobody knows a server of this name (DNS). Check the address."
        )
    if isinstance(reason, TimeoutError):
        return StorageError(f"{where} cannot be read: the server does not answer (timed out).{often}")
    wait_s = retry_after_s(reason)
    if wait_s:
        often += f" The server asks to come back in {wait_s:.0f} s."
    return StorageError(f"{where} cannot be read: {_named(reason)}.{often}")


def _missing(where: str) -> StorageError:
    return StorageError(f"{where} does not exist. Check the address.")


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def http_options() -> dict[str, Any]:
    """Options for fsspec's driver of http:// and https://."""
    return {"get_client": _open_session, "skip_instance_cache": True}


async def _open_session(**settings: Any) -> Any:
    import aiohttp

    tracing = aiohttp.TraceConfig()
    tracing.on_request_end.append(_require_records)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S
        ),
        # Compressed on the way, a range would be of other bytes than those asked for.
        headers={"Accept-Encoding": "identity"},
        trace_configs=[tracing],
        **settings,
    )


async def _require_records(_session: Any, _context: SimpleNamespace, request: Any) -> None:
    # Called when the answer's headers are there: the whole file, sent instead, is not downloaded first.
    response = request.response
    if response.status in _SUCCESSES and response.headers.get("Content-Type", "").startswith("text/html"):
        response.close()
        asked = response.history[0].url if response.history else request.url
        sent_on = f" (it was sent on to {response.url})" if response.history else ""
        raise StorageError(
            f"{asked}: the server answers {response.status} with a web page and no record{sent_on}: a login "
            "page, or one that says what is wrong. Open the address in a browser, and check that it is right."
        )
    if "Range" in request.headers and response.status == 200:
        response.close()
        raise StorageError(
            f"{request.url}: the server ignores range requests and sends whole files. Records need a server "
            "that answers them (nginx, S3, ...); Python's http.server does not."
        )
