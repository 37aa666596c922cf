"""Range reads and safe writes through obstore: object stores (s3://, gs://, az://) and web servers.

All threads of a process share one pooled client. Requests that failed in transit are retried by
`storage.retry`, which counts them, rather than by the client, which does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pcr_exp.config.credentials import how_to_give_credentials
from pcr_exp.errors import StorageError
from pcr_exp.redaction import redacted_text
from pcr_exp.storage import object_errors
from pcr_exp.storage.failures import Body, SeenTags, require_record
from pcr_exp.storage.protocol import Counts, WritableStorage
from pcr_exp.storage.remote import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, request_headers

if TYPE_CHECKING:
    from obstore import GetResult, UpdateVersion
    from obstore.store import ObjectStore

SCHEMES = ("s3://", "s3a://", "gs://", "az://", "http://", "https://")
_NO_LIMIT = timedelta(days=30)
_PART_BYTES = 16 * 2**20
"""Larger files are uploaded in parts of this size, several at a time."""
_RANGE_NOT_SATISFIABLE = 416
_ENDPOINTS = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
"""Environment variables with the address of a server; over http:// if it says so."""
_OF_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
}
"""Options of the client that connects, whatever the store."""

_client_process: int | None = None
"""The process in which obstore's threads were started; they do not survive a fork."""

Answer = TypeVar("Answer")


class ObjectStorage(WritableStorage):
    """Objects below an address. Every read is one range request, and reads no more than requested.

    It is an error if an object's ETag differs from that at its first read: records of two encodes would be
    mixed, and the index would not match.
    """

    is_remote = True

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`options` are the store's (`endpoint`, `region`, `skip_signature`, ...), besides the environment's.

        Raises:
            StorageError: obstore or tenacity is not installed, or the address or an option is unknown.
        """
        self.url = url.rstrip("/")
        try:
            from obstore.store import from_url

            from pcr_exp.storage.plain_http import AskedToWait
            from pcr_exp.storage.retry import Retrying
        except ImportError as error:
            raise StorageError(
                f"{url} needs a client that is not installed: {error}. "
                "`pip install 'pcr-exp[remote]'` installs it."
            ) from error
        settings = dict(options or {})
        addresses = [self.url, *(str(value) for name, value in settings.items() if "endpoint" in name)]
        addresses += [os.environ.get(name, "") for name in _ENDPOINTS]
        if self.url.startswith("gs://") and (emulator := os.environ.get("STORAGE_EMULATOR_HOST")):
            endpoint = emulator if "://" in emulator else f"http://{emulator}"
            addresses.append(endpoint)
            settings.setdefault("service_account_key", _key_of_emulator(endpoint))
        client: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "read_timeout": timedelta(seconds=SILENCE_TIMEOUT_S),
            # A request that brings bytes may take as long as it needs.
            "timeout": _NO_LIMIT,
            "default_headers": request_headers(self.url),
        }
        if any(address.startswith("http://") for address in addresses):
            client["allow_http"] = True  # else as AWS_ALLOW_HTTP and the like say
        client |= {name: settings.pop(name) for name in _OF_CLIENT & settings.keys()}
        config: dict[str, Any] = {} if self.url.startswith("http") else {"config": settings}
        try:
            open_store: Callable[..., ObjectStore] = from_url  # its options depend on the scheme
            self._store = open_store(
                self.url, **config, client_options=client, retry_config={"max_retries": 0}
            )
        # The library's own, with no common base. It panics at options that it does not expect.
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            remedy = f" {how_to_give_credentials(url)}" if "Account must be specified" in str(error) else ""
            raise StorageError(
                f"{url} cannot be opened: {object_errors.first_line(error)}.{remedy}"
            ) from error
        self._retrying = Retrying(object_errors.is_passing, object_errors.is_refusal)
        self._asked_to_wait = AskedToWait()
        self._tags = SeenTags()

    def counts(self) -> Counts:
        """Return the number of retries, which are requests too."""
        return Counts(self._retrying.num_retries, self._retrying.num_retries)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes `[offset, offset + length)` of an object; fewer at its end.

        Raises:
            StorageError: the object is missing or has changed, or the request failed (several times, if the
                failure may be temporary). Or the server does not support ranges, or sends too many bytes, a
                web page or compressed data.
            ReadCancelledError: `interruptible`'s event was set before a retry.
        """
        if length == 0:
            return b""
        import obstore

        def attempt() -> bytes:
            answer = obstore.get(self._store, path, options={"range": (offset, offset + length)})
            require_record(where, answer.attributes)
            self._tags.require_same(where, answer.meta["e_tag"])
            return _received(answer, where, length, at_start=offset == 0)

        where = f"{self.url}/{path}"
        try:
            return self._ask(attempt, path)
        except StorageError as error:
            if object_errors.status_of(error.__cause__) == _RANGE_NOT_SATISFIABLE:
                return b""  # the server's answer if an object ends before `offset`
            raise

    def size(self, path: str) -> int:
        """Return an object's length in bytes. Raises StorageError as `read` does."""
        import obstore

        def attempt() -> int:
            answer = obstore.get(self._store, path, options={"head": True})
            require_record(f"{self.url}/{path}", answer.attributes)
            return int(answer.meta["size"])

        return self._ask(attempt, path)

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield (path, bytes) of every object below a folder. Raises StorageError as `read` does."""
        import obstore

        def attempt() -> list[tuple[str, int]]:
            pages = obstore.list(self._store, folder)
            return [(str(found["path"]), int(found["size"])) for page in pages for found in page]

        yield from self._ask(attempt, folder)

    def names(self, folder: str) -> set[str] | None:
        """Names of the objects directly in a folder; None over http. Raises StorageError as `read` does."""
        if self.url.startswith("http"):
            return None
        below = f"{folder}/" if folder else ""
        names = (path.removeprefix(below) for path, _ in self.sizes(folder))
        return {name for name in names if "/" not in name}

    def write(self, path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
        """Create an object, in parts if it is large. If there is one already, keep it and return False.

        A small object is written by a conditional request, so that one of two writers wins. An existing one
        of the same bytes counts as written. With `replaces`, an object of those bytes is replaced.

        Raises:
            StorageError: as `read` does, or the store refuses the write.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        where = f"{self.url}/{path}"
        self._tags.forget(where)

        def attempt() -> None:
            if replaces is not None:
                found = obstore.get(self._store, path)
                if found.meta["size"] != len(replaces):
                    raise AlreadyExistsError(path)
                if _received(found, where, len(replaces)) != replaces:
                    raise AlreadyExistsError(path)
                # The version that was read: S3 and Azure identify it by ETag, Google by generation.
                meta = found.meta
                seen: UpdateVersion = {"e_tag": meta["e_tag"], "version": meta["version"]}
                obstore.put(self._store, path, data, mode=seen)
            elif len(data) <= _PART_BYTES:
                obstore.put(self._store, path, data, mode="create")
            else:
                obstore.put(self._store, path, data, use_multipart=True, chunk_size=_PART_BYTES)

        if replaces is None and len(data) > _PART_BYTES and self.size_or_none(path) is not None:
            return False
        try:
            self._ask(attempt, path)
        except StorageError as error:
            # If an answer was lost, the retry finds what the first attempt wrote.
            if isinstance(error.__cause__, AlreadyExistsError | PreconditionError):
                return self.read(path, 0, len(data) + 1) == data
            raise
        return True

    def remove(self, path: str) -> None:
        """Remove an object if it exists. Raises StorageError as `write` does."""
        import obstore

        def attempt() -> None:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, path)

        self._tags.forget(f"{self.url}/{path}")
        self._ask(attempt, path)

    def _ask(self, attempt: Callable[[], Answer], path: str) -> Answer:
        global _client_process
        if not usable():
            raise forked(self.url)
        _client_process = os.getpid()
        where = f"{self.url}/{path}"
        try:
            return self._retrying.call(lambda: self._with_headers(attempt, path), redacted_text(where))
        except StorageError:
            raise
        except Exception as error:  # the library's own, with no common base
            reason = getattr(error, "error", error)
            if object_errors.is_other_than_asked(reason) and self.url.startswith("http"):
                from pcr_exp.storage.plain_http import check_for_page

                check_for_page(where, where)
            raise object_errors.explained(where, error) from reason

    def _with_headers(self, attempt: Callable[[], Answer], path: str) -> Answer:
        """Call `attempt`, and add to its error the `Retry-After` header that the client hides."""
        from pcr_exp.storage.plain_http import ASKS_TO_WAIT

        try:
            return attempt()
        except Exception as error:
            if not isinstance(error, StorageError) and object_errors.status_of(error) in ASKS_TO_WAIT:
                error.headers = self._asked_to_wait.headers(lambda: self._plain_url(path))  # type: ignore[attr-defined]
            raise

    def _plain_url(self, path: str) -> str | None:
        """Return an address at which any client can request an object's headers; None if there is none."""
        import obstore

        if self.url.startswith("http"):
            return f"{self.url}/{path}"
        try:
            store: Any = self._store  # some kinds cannot sign, and raise an error
            return str(obstore.sign(store, "HEAD", path, timedelta(minutes=1)))
        except Exception:  # the library's own
            return None

    def __str__(self) -> str:
        return redacted_text(self.url)


def _received(answer: GetResult, where: str, length: int, *, at_start: bool = False) -> bytes:
    """Read the body. Raises StorageError, and stops reading, if it exceeds `length` bytes."""
    body = Body(where, length)
    for part in answer.stream(min_chunk_size=length + 1):
        body.add(part)
    return body.whole(at_start=at_start)


def usable() -> bool:
    """Whether this process may use obstore, as no process that it was forked from has used it."""
    return _client_process in (None, os.getpid())


def forked(url: str) -> StorageError:
    """Error for a process that may not use obstore, where no other client can take its place."""
    return StorageError(
        f"{url}: this process was forked from one that reads from an object store, whose client "
        "does not survive a fork. Start worker processes with multiprocessing_context='forkserver'."
    )


def _key_of_emulator(base_url: str) -> str:
    """Return a key that points the client to an emulator without credentials, as no setting does that."""
    unused = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({"gcs_base_url": base_url, "disable_oauth": True, **unused})
