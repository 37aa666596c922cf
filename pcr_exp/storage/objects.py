"""Range reads and careful writes of object stores and web servers, through obstore: s3://, gs://, az://, http://.

One pooled client for all threads of a process. A request that failed on its way is made again by
`storage.retry`, which counts, and not by the client, which does not.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pcr_exp.errors import StorageError
from pcr_exp.storage.object_errors import explained, first_line, is_passing, missing, status_of
from pcr_exp.storage.remote import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

SCHEMES = ("s3://", "s3a://", "gs://", "az://", "http://", "https://")
_NO_LIMIT = timedelta(days=30)
_PART_BYTES = 16 * 2**20
"""Larger files are sent in parts of this size, several at a time."""
_RANGE_NOT_SATISFIABLE = 416

_client_process: int | None = None
"""The process in which obstore's threads were started. They do not survive a fork."""

Answer = TypeVar("Answer")


class ObjectStorage:
    """Objects below an address. Every read is one ranged request of exactly the bytes asked for.

    An object that is another than at its first read, by its ETag, is an error: records of two encodes would
    be mixed, and the index would not fit.
    """

    is_remote = True

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`options` are the store's (`endpoint`, `region`, `skip_signature`, ...), beside the environment.

        Raises:
            StorageError: obstore or tenacity is not installed, or the address or an option is unknown.
        """
        self.url = url.rstrip("/")
        try:
            from obstore.store import from_url

            from pcr_exp.storage.retry import Retrying
        except ImportError as error:
            raise StorageError(
                f"{url} needs a client that is not installed: {error}. "
                "`pip install 'pcr-exp[remote]'` brings it."
            ) from error
        settings = dict(options or {})
        endpoint = str(settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or "")
        if self.url.startswith("gs://") and (emulator := os.environ.get("STORAGE_EMULATOR_HOST")):
            endpoint = emulator if "://" in emulator else f"http://{emulator}"
            settings.setdefault("service_account_key", _key_of_emulator(endpoint))
        client = {
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "read_timeout": timedelta(seconds=SILENCE_TIMEOUT_S),
            # One that brings bytes may take as long as it needs.
            "timeout": _NO_LIMIT,
            "allow_http": f"{endpoint}{self.url}".startswith("http://"),
        }
        config: dict[str, Any] = {} if self.url.startswith("http") else {"config": settings}
        try:
            open_store: Callable[..., ObjectStore] = from_url  # its options depend on the scheme
            self._store = open_store(
                self.url, **config, client_options=client, retry_config={"max_retries": 0}
            )
        except Exception as error:  # the library's own, with no common base
            raise StorageError(f"{url} cannot be opened: {first_line(error)}.") from error
        self._retrying = Retrying(is_passing)
        self._tags: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def num_retries(self) -> int:
        """Requests that were made again."""
        return self._retrying.num_retries

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)` of an object; fewer at its end.

        Raises:
            StorageError: it is missing or has changed, the request failed (several times, where that may
                pass), the server knows no ranges, or what it sends is a web page.
            ReadCancelledError: `interruptible`'s event was set before it was made again.
        """
        if length == 0:
            return b""
        import obstore

        def attempt() -> bytes:
            answer = obstore.get(self._store, path, options={"range": (offset, offset + length)})
            self._require_record(path, answer.attributes)
            self._require_unchanged(path, answer.meta["e_tag"])
            return bytes(answer.bytes())

        try:
            return self._ask(attempt, path)
        except StorageError as error:
            if status_of(error.__cause__) == _RANGE_NOT_SATISFIABLE:
                return b""  # how a server says that an object ends before `offset`
            raise

    def size(self, path: str) -> int:
        """Length of an object in bytes. Raises StorageError as `read` does."""
        size = self.size_or_none(path)
        if size is None:
            raise missing(f"{self.url}/{path}")
        return size

    def size_or_none(self, path: str) -> int | None:
        """The same; None if there is no such object."""
        import obstore

        try:
            return self._ask(lambda: int(obstore.head(self._store, path)["size"]), path)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """(path, bytes) of every object below a folder. Raises StorageError as `read` does."""
        import obstore

        def attempt() -> list[tuple[str, int]]:
            pages = obstore.list(self._store, folder)
            return [(str(found["path"]), int(found["size"])) for page in pages for found in page]

        yield from self._ask(attempt, folder)

    def write(self, path: str, data: bytes, *, replaces: bytes | None = None) -> bool:
        """Write an object where there is none; in parts, if it is large. False: there is one, and it stays.

        A small one is written by a conditional request, so that of two writers one wins; one of these bytes
        counts as written. With `replaces`, what is there is replaced if it is those bytes.

        Raises:
            StorageError: as `read`, or the store does not let it be written.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        self._tags.pop(path, None)

        def attempt() -> None:
            if replaces is not None:
                found = obstore.get(self._store, path)
                if bytes(found.bytes()) != replaces:
                    raise AlreadyExistsError(path)
                # Of what was read: S3 and Azure know it by its ETag, Google by its generation.
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
            # A request whose answer was lost is made again, and then finds what it wrote itself.
            if isinstance(error.__cause__, AlreadyExistsError | PreconditionError):
                return self.read(path, 0, len(data) + 1) == data
            raise
        return True

    def remove(self, path: str) -> None:
        """Remove an object, if it is there. Raises StorageError as `write` does."""
        import obstore

        def attempt() -> None:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, path)

        self._tags.pop(path, None)
        self._ask(attempt, path)

    def _ask(self, attempt: Callable[[], Answer], path: str) -> Answer:
        global _client_process
        if not usable():
            raise StorageError(
                f"{self.url}: this process was forked from one that reads from an object store, whose client "
                "does not survive that. Start worker processes with multiprocessing_context='forkserver'."
            )
        _client_process = os.getpid()
        try:
            return self._retrying.call(attempt, f"{self.url}/{path}")
        except StorageError:
            raise
        except Exception as error:  # the library's own, with no common base
            raise explained(f"{self.url}/{path}", error) from getattr(error, "error", error)

    def _require_unchanged(self, path: str, tag: str | None) -> None:
        if tag is None:
            return
        with self._lock:
            first = self._tags.setdefault(path, tag)
        if first != tag:
            raise StorageError(
                f"{self.url}/{path} was replaced while it was in use: its ETag is {tag}, at its first read "
                f"it was {first}. Records must not change under a run: go on when nobody writes there."
            )

    def _require_record(self, path: str, attributes: Mapping[Any, Any]) -> None:
        if str(attributes.get("Content-Type", "")).startswith("text/html"):
            raise StorageError(
                f"{self.url}/{path}: the server answers with a web page and no record: a login page, or one "
                "that says what is wrong. Open the address in a browser, and check that it is right."
            )

    def __str__(self) -> str:
        return self.url


def usable() -> bool:
    """Whether this process may use obstore: it, and none that it was forked from, has begun to."""
    return _client_process in (None, os.getpid())


def _key_of_emulator(base_url: str) -> str:
    """What makes the client ask there, without credentials: it has no setting of its own for that."""
    unused = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({"gcs_base_url": base_url, "disable_oauth": True, **unused})
