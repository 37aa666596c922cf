"""Records on the Hugging Face Hub: hf://datasets/owner/name/..., hf://buckets/owner/name/...

Requests use huggingface_hub's client, its endpoint (HF_ENDPOINT) and its token (HF_TOKEN or `hf auth login`).
Files are behind redirects to signed addresses. Each address is cached until it expires, so that a read is one
request. The token goes to the Hub only. `storage.retry` retries requests.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

from pcr_exp.config.credentials import how_to_give_credentials
from pcr_exp.errors import MissingFileError, RefusedError, StorageError
from pcr_exp.storage import failures
from pcr_exp.storage.failures import Body, SeenTags, require_record
from pcr_exp.storage.protocol import Counts, WritableStorage
from pcr_exp.storage.remote import SILENCE_TIMEOUT_S

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://(datasets|buckets)/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 10
_EXPIRED = (401, 403, 404, 410)
"""Statuses from a signed address that has expired."""
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_COMMIT_BYTES, _COMMIT_FILES = 2**28, 100
"""Files are collected up to these limits before a commit, because the Hub limits commits."""

Answer = TypeVar("Answer")


class AnsweredError(Exception):
    """The Hub, or a server that it redirected to, answered with an error."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.code = headers.get("X-Error-Code", "")
        self.headers = _retry_after(headers)


class HubStorage(WritableStorage):
    """Files below an address of a dataset (of its main branch or `@revision`) or a bucket.

    It is an error if a file's ETag differs from that at its first read, as in other storages.
    """

    is_remote = True

    def __init__(self, url: str) -> None:
        """Parse the address, without making a request.

        Raises:
            StorageError: huggingface_hub or tenacity is not installed, or the address is of neither kind.
        """
        self.url = url.rstrip("/")
        found = _ADDRESS.fullmatch(self.url)
        if found is None:
            raise StorageError(
                f"{url}: wanted hf://datasets/<owner>/<name>[@<revision>]/... or "
                "hf://buckets/<owner>/<name>/..."
            )
        try:
            from huggingface_hub import HfApi

            from pcr_exp.storage.retry import Retrying
        except ImportError as error:
            raise StorageError(
                f"{url} needs a client that is not installed: {error}. "
                "`pip install 'pcr-exp[hub]'` installs it."
            ) from error
        kind, self._repo, revision, folder = found.groups()
        self._is_bucket = kind == "buckets"
        self._revision = unquote(revision or "main")
        self._folder = f"{folder}/" if folder else ""
        self._api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="pcr-exp")
        at = "" if self._is_bucket else f"/{quote(self._revision, safe='')}"
        self._resolves = f"{self._api.endpoint}/{kind}/{self._repo}/resolve{at}/"
        self._retrying = Retrying(_is_passing, _is_refusal)
        self._tags = SeenTags()
        self._locations: dict[str, str] = {}
        """By path, the address where the file was last found."""
        self._lock, self._committing = threading.Lock(), threading.Lock()
        self._pending: dict[str, bytes | None] = {}
        """By path in the repository, the bytes to commit; None to remove the file."""

    def counts(self) -> Counts:
        """Return the number of retries, which are requests too."""
        return Counts(self._retrying.num_retries, self._retrying.num_retries)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes `[offset, offset + length)` of a file; fewer at its end.

        Raises:
            StorageError: the file is missing or has changed, the request failed (several times, if that may
                be temporary), or the server sends anything other than that range.
            ReadCancelledError: `interruptible`'s event was set before a retry.
        """
        return self._ask(lambda: self._range(path, offset, length)[0], path) if length else b""

    def size(self, path: str) -> int:
        """Return a file's length in bytes. Raises StorageError as `read` does."""
        return self._ask(lambda: self._range(path, 0, 1)[1], path)

    def names(self, folder: str) -> set[str] | None:
        """Names of the files directly in a folder. Raises StorageError as `read` does."""
        below = f"{folder}/" if folder else ""
        return {path.removeprefix(below) for path, _ in self._listed(folder, recursive=False)}

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield (path, bytes) of every file below a folder. Raises StorageError as `read` does."""
        yield from self._listed(folder, recursive=True)

    def write(self, path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
        """Write as `WritableStorage.write` does, but the file may not be there until `flush`."""
        found = self._contents(path)
        if found == data:
            return True
        if found != replaces:
            return False
        self._gather(path, data)
        return True

    def remove(self, path: str) -> None:
        """Remove a file if it exists, with `flush` at the latest."""
        if self.size_or_none(path) is not None:
            self._gather(path, None)
        else:  # it was only collected; the Hub refuses to delete what it does not have
            with self._lock:
                self._pending.pop(self._folder + path, None)

    def flush(self) -> None:
        """Commit the collected files. Raises StorageError if the Hub refuses; they stay collected then."""
        with self._committing:  # of two concurrent commits, one would be refused
            with self._lock:
                pending, self._pending = self._pending, {}
            if not pending:
                return
            for path in pending:
                self._forget(path.removeprefix(self._folder))
            try:
                self._ask(lambda: self._commit(pending), next(iter(pending)).removeprefix(self._folder))
            except BaseException:
                with self._lock:
                    self._pending = pending | self._pending
                raise

    def _contents(self, path: str) -> bytes | None:
        """Return a file as it will be after `flush`; None if there is none."""
        with self._lock:
            if self._folder + path in self._pending:
                return self._pending[self._folder + path]
        there = self.size_or_none(path)
        return None if there is None else self.read(path, 0, max(there, 1))

    def _gather(self, path: str, data: bytes | None) -> None:
        with self._lock:
            self._pending[self._folder + path] = data
            num_bytes = sum(len(one) for one in self._pending.values() if one is not None)
            is_full = num_bytes >= _COMMIT_BYTES or len(self._pending) >= _COMMIT_FILES
        if is_full:
            self.flush()

    def _forget(self, path: str) -> None:
        self._tags.forget(f"{self.url}/{path}")
        self._locations.pop(path, None)

    def _commit(self, pending: Mapping[str, bytes | None]) -> None:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        if self._is_bucket:
            added = [(data, path) for path, data in pending.items() if data is not None]
            removed = [path for path, data in pending.items() if data is None]
            self._api.batch_bucket_files(self._repo, add=added, delete=removed)
            return
        operations = [
            CommitOperationDelete(path) if data is None else CommitOperationAdd(path, data)
            for path, data in pending.items()
        ]
        what = f"{len(operations)} files of records" if len(operations) > 1 else next(iter(pending))
        self._api.create_commit(
            self._repo, operations, commit_message=what, repo_type="dataset", revision=self._revision
        )

    def _listed(self, folder: str, *, recursive: bool) -> list[tuple[str, int]]:
        def attempt() -> list[tuple[str, int]]:
            inside = (self._folder + folder).rstrip("/")
            if self._is_bucket:
                entries: Any = self._api.list_bucket_tree(self._repo, inside or None, recursive=recursive)
            else:
                entries = self._api.list_repo_tree(
                    self._repo,
                    inside or None,
                    recursive=recursive,
                    repo_type="dataset",
                    revision=self._revision,
                )
            files = ((entry.path, entry.size) for entry in entries if hasattr(entry, "size"))
            return [(path.removeprefix(self._folder), int(size)) for path, size in files]

        try:
            return self._ask(attempt, folder)
        except MissingFileError:
            return []

    def _range(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """Return a range of a file and the file's size, from where it was last found or through the Hub."""
        known = self._locations.get(path)
        if known is not None:
            try:
                return self._receive(known, path, offset, length, signed=True)
            except AnsweredError as error:
                if error.status not in _EXPIRED:
                    raise
                self._locations.pop(path, None)
        return self._receive(self._resolves + quote(self._folder + path), path, offset, length)

    def _receive(
        self, address: str, path: str, offset: int, length: int, *, signed: bool = False
    ) -> tuple[bytes, int]:
        """Read from the Hub or, if `signed`, from an address that it gave before, whose ETags are others."""
        from huggingface_hub import get_session

        where, tag = f"{self.url}/{path}", None
        for _ in range(_MAX_REDIRECTS):
            headers = self._headers(address) | {"Range": f"bytes={offset}-{offset + length - 1}"}
            with get_session().stream(
                "GET", address, headers=headers, follow_redirects=False, timeout=SILENCE_TIMEOUT_S
            ) as answer:
                status, told = answer.status_code, answer.headers
                if status in _REDIRECTS:
                    tag = told.get("X-Linked-ETag") or tag
                    address = urljoin(address, told.get("Location", ""))
                    continue
                if status == _RANGE_NOT_SATISFIABLE:
                    return b"", _total(told)
                if status >= 400:
                    raise AnsweredError(status, told)
                require_record(where, told)
                if status != _PARTIAL_CONTENT:
                    raise failures.no_ranges(where)
                if not told.get("Content-Range", "").startswith(f"bytes {offset}-"):
                    raise failures.other_range(where)
                size = _total(told)
                body = Body(where, length)
                for part in answer.iter_raw():
                    body.add(part)
            data = body.whole(at_start=offset == 0)
            if len(data) != min(length, size - offset):
                raise ConnectionError(
                    f"the answer ended after {len(data)} of {min(length, size - offset)} bytes"
                )
            self._tags.require_same(where, tag or (None if signed else told.get("ETag")))
            if tag is not None:
                self._locations[path] = address
            return data, size
        raise failures.sent_around(where)

    def _headers(self, address: str) -> dict[str, str]:
        """Return a request's headers: for uncompressed bytes and, for the Hub only, the token."""
        from huggingface_hub.utils import build_hf_headers

        headers = {**build_hf_headers(library_name="pcr-exp"), "Accept-Encoding": "identity"}
        if urlsplit(address)[:2] != urlsplit(self._api.endpoint)[:2]:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        return headers

    def _ask(self, attempt: Callable[[], Answer], path: str) -> Answer:
        where = f"{self.url}/{path}".rstrip("/")
        try:
            return self._retrying.call(attempt, where)
        except StorageError:
            raise
        except Exception as error:  # the client's own, with no common base
            raise self._explained(where, error) from error

    def _explained(self, where: str, error: Exception) -> StorageError:
        from pcr_exp.storage.retry import last_failure

        reason, often = last_failure(error)
        status, code = _status_and_code(reason)
        if code in ("RepoNotFound", "GatedRepo"):
            kind = "bucket" if self._is_bucket else "dataset"
            return RefusedError(
                f"{where}: there is no {kind} {self._repo} on the Hub, or it is private or gated. Create "
                f"it with `hf` before uploading records to it. {how_to_give_credentials(where)}"
            )
        if status == 404:
            return failures.missing(where)
        if status in (401, 403):
            return failures.refused(where, status)
        names = _names(reason)
        if _is_untrusted(reason):
            return failures.untrusted(where)
        if _is_unknown_name(reason):
            return failures.unknown_name(where)
        if "ConnectError" in names:
            return failures.nobody_listens(where, often)
        if names & {"TimeoutException", "TimeoutError"}:
            return failures.silent(where, often)
        return failures.other(where, reason, often)

    def __str__(self) -> str:
        return self.url


def _total(headers: Mapping[str, str]) -> int:
    """Return a file's size from the answer to a range request. Raises ConnectionError if it is missing."""
    found = re.fullmatch(r"bytes .*/(\d+)", headers.get("Content-Range", ""))
    if found is None:
        said = headers.get("Content-Range")
        raise ConnectionError(f"the answer does not state a size (Content-Range: {said})")
    return int(found[1])


def _retry_after(headers: Mapping[str, str]) -> dict[str, str]:
    """Return `Retry-After` from the server, or the equivalent from the Hub's own `RateLimit`."""
    from huggingface_hub.utils import parse_ratelimit_headers

    asked = headers.get("Retry-After")
    if asked is None:
        limit = parse_ratelimit_headers(headers)
        asked = str(limit.reset_in_seconds) if limit is not None and not limit.remaining else None
    return {} if asked is None else {"Retry-After": asked}


def _status_and_code(error: BaseException) -> tuple[int | None, str]:
    """Return an answer's status and the Hub's own code. The status is None if there was no answer."""
    if isinstance(error, AnsweredError):
        return error.status, error.code
    answer = getattr(error, "response", None)  # of the library's errors
    return (None, "") if answer is None else (answer.status_code, answer.headers.get("X-Error-Code", ""))


def _names(error: BaseException) -> set[str]:
    """Names of an error's classes, which did not change when the library changed its HTTP client."""
    return {kind.__name__ for kind in type(error).__mro__}


def _is_passing(error: BaseException) -> bool:
    from pcr_exp.storage.retry import is_passing_status

    status, _ = _status_and_code(error)
    if status is not None:
        return is_passing_status(status)
    names = _names(error)
    refused = names & {"StorageError", "OfflineModeIsEnabled", "UnsupportedProtocol"}
    lasts = refused or _is_untrusted(error) or _is_unknown_name(error)
    return not lasts and bool(names & {"TransportError", "ConnectionError", "TimeoutError"})


def _is_untrusted(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _is_unknown_name(error: BaseException) -> bool:
    """Whether DNS does not know the server's name (and not just temporarily)."""
    names = [cause for cause in _causes(error) if isinstance(cause, socket.gaierror)]
    return any(name.errno != socket.EAI_AGAIN for name in names)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_refusal(error: BaseException) -> bool:
    return "ConnectError" in _names(error)
