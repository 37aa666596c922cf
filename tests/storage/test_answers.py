"""Servers whose answers differ from the request: how much is read, and what the error calls it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_http_server import RangeServer, range_server

from pcr_exp.errors import MissingFileError, RefusedError, StorageError
from pcr_exp.storage import failures
from pcr_exp.storage.failures import Body, SeenTags, require_record
from pcr_exp.storage.objects import ObjectStorage
from pcr_exp.storage.remote import FsspecStorage

for package in ("aiohttp", "obstore", "tenacity"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'pcr-exp[remote]'")

from pcr_exp.storage import retry  # noqa: E402

CONTENT = bytes(range(256)) * 40
GIB = 2**30
Storage = ObjectStorage | FsspecStorage


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a.pcr").write_bytes(CONTENT)
    (tmp_path / "bucket" / "page.pcr").write_bytes(b"\n <!DOCTYPE HTML><title>Who are you?</title>")
    (tmp_path / "bucket" / "login.html").write_bytes(b"Who are you?")
    with range_server(tmp_path) as running:
        yield running


@pytest.fixture(params=["obstore over http", "obstore over s3", "fsspec over http"])
def storage(request: pytest.FixtureRequest, server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.01)
    monkeypatch.delenv("PCR_EXP_HTTP_AUTHORIZATION", raising=False)
    if request.param == "obstore over s3":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2x")
        return ObjectStorage("s3://bucket", {"endpoint": server.url, "region": "here"})
    kind: Callable[[str], Storage] = ObjectStorage if "obstore" in request.param else FsspecStorage
    return kind(f"{server.url}/bucket")


def misbehave(server: RangeServer, num_bad: int | None, **how: Any) -> None:
    server.num_bad = num_bad
    for name, value in how.items():
        setattr(server, name, value)


@pytest.mark.parametrize("num_more", [1, 64 * GIB])
def test_a_longer_answer_is_not_read_to_its_end(server: RangeServer, storage: Storage, num_more: int) -> None:
    misbehave(server, None, sends_more_bytes=num_more)
    with pytest.raises(StorageError, match=r"a\.pcr: the server sends more than the 100 requested bytes"):
        storage.read("a.pcr", 50, 100)
    assert storage.counts().num_retries == 0
    assert server.num_body_bytes < 64 * 2**20, "what lies in the sockets' buffers"


def test_endless_chunks_are_not_read_to_their_end(server: RangeServer, storage: Storage) -> None:
    misbehave(server, None, is_chunked=True, sends_more_bytes=64 * GIB)
    with pytest.raises(
        StorageError, match=r"a\.pcr: the server (sends more than the 100|does not state its)"
    ):
        storage.read("a.pcr", 50, 100)
    assert storage.counts().num_retries == 0
    assert server.num_body_bytes < 64 * 2**20


def test_nothing_compressed_is_asked_for_or_taken(server: RangeServer, storage: Storage) -> None:
    assert storage.read("a.pcr", 50, 100) == CONTENT[50:150]
    misbehave(server, None, gzips=True)
    for attempt in (lambda: storage.read("a.pcr", 50, 100), lambda: storage.size("a.pcr")):
        with pytest.raises(StorageError, match=r"sends it compressed \(Content-Encoding: gzip\)"):
            attempt()
    assert set(server.accepted_encodings) == {"identity"}
    assert storage.counts().num_retries == 0


def test_other_bytes_than_those_asked_for_are_not_taken(server: RangeServer, storage: Storage) -> None:
    misbehave(server, None, other_range=7)
    with pytest.raises(
        StorageError, match=r"a\.pcr: the server sent a different range from the one requested"
    ):
        storage.read("a.pcr", 50, 100)
    assert len(server.requests) == 1


def test_an_object_that_is_replaced_meanwhile_is_an_error(server: RangeServer, storage: Storage) -> None:
    storage.read("a.pcr", 0, 10)
    misbehave(server, None, revision=7)
    with pytest.raises(StorageError, match=r'a\.pcr was replaced .* its ETag is "7", .* was "0"'):
        storage.read("a.pcr", 10, 10)
    assert storage.counts().num_retries == 0


@pytest.mark.parametrize("page", ["login.html", "page.pcr"])
@pytest.mark.parametrize("how", [{}, {"knows_ranges": False}, {"knows_ranges": False, "is_chunked": True}])
def test_a_web_page_is_called_one(
    server: RangeServer, storage: Storage, page: str, how: dict[str, Any]
) -> None:
    misbehave(server, None, **how)
    if str(storage).startswith("s3") and how:
        wanted = "ignores range requests|does not state its size"
    elif page == "page.pcr" and how and isinstance(storage, FsspecStorage):
        wanted = "ignores range requests"  # it is not labelled as a web page, and nothing of it was read
    else:
        wanted = r"a web page instead of a record\. It may be a login page"
    with pytest.raises(StorageError, match=wanted):
        storage.read(page, 0, 100)
    assert storage.counts().num_retries == 0


def test_a_circle_of_redirects_ends_after_ten(server: RangeServer, storage: Storage) -> None:
    misbehave(server, None, status=302, headers={"Location": "/bucket/a.pcr"})
    with pytest.raises(StorageError, match=r"redirects more than ten times, perhaps in a loop"):
        storage.read("a.pcr", 0, 10)
    assert 10 <= len(server.requests) <= 11
    assert storage.counts().num_retries == 0


def test_a_server_says_how_long_to_wait(server: RangeServer, storage: Storage) -> None:
    looks = int(isinstance(storage, ObjectStorage))
    misbehave(server, 1 + looks, status=503, headers={"Retry-After": "1"})
    started_s = time.monotonic()
    assert storage.read("a.pcr", 0, 10) == CONTENT[:10]
    assert time.monotonic() - started_s >= 0.99, "our own backoff is 0.02 s here"
    assert [method for method, *_ in server.requests] == ["GET", *["HEAD"] * looks, "GET"]


def test_who_asks_for_more_than_our_patience_is_not_waited_for(server: RangeServer, storage: Storage) -> None:
    misbehave(server, None, status=429, headers={"Retry-After": "3600"})
    started_s = time.monotonic()
    with pytest.raises(StorageError, match=r"429.*tried 1 times.*asks to wait 3600 s"):
        storage.read("a.pcr", 0, 10)
    assert time.monotonic() - started_s < 30
    assert [method for method, *_ in server.requests].count("GET") == 1


def test_threads_that_are_refused_together_look_once_how_long_to_wait(server: RangeServer) -> None:
    storage = ObjectStorage(f"{server.url}/bucket")
    server.together = threading.Barrier(8)
    misbehave(server, None, status=503, headers={"Retry-After": "3600"})

    def read() -> None:
        with pytest.raises(StorageError, match="The server asks to wait"):
            storage.read("a.pcr", 0, 10)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [method for method, *_ in server.requests].count("HEAD") == 1


def test_credentials_for_http_come_from_the_environment_and_go_nowhere_else(
    server: RangeServer, storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PCR_EXP_HTTP_AUTHORIZATION", "Bearer hunter2x")
    is_http = str(storage).startswith("http")
    again = type(storage)(storage.url) if is_http else storage
    assert again.read("a.pcr", 0, 10) == CONTENT[:10]
    assert (server.authorizations == ["Bearer hunter2x"]) == is_http
    with range_server(tmp_path) as elsewhere:
        misbehave(
            server, None, status=302, headers={"Location": f"http://localhost:{elsewhere.server_port}/a"}
        )
        if is_http:
            with pytest.raises(MissingFileError):
                again.read("b.pcr", 0, 10)
            assert elsewhere.authorizations == [None]


def test_a_password_in_an_address_is_used_and_not_shown(server: RangeServer) -> None:
    address = server.url.replace("://", "://me:hunter2x@")
    for kind in (ObjectStorage, FsspecStorage):
        storage = kind(f"{address}/bucket")
        assert storage.read("a.pcr", 0, 10) == CONTENT[:10]
        assert server.authorizations.pop() == "Basic bWU6aHVudGVyMng="
        with pytest.raises(MissingFileError) as raised:
            storage.read("b.pcr", 0, 10)
        assert "hunter2x" not in f"{raised.value} {storage}"
        assert "http://***@127.0.0.1" in str(raised.value) and "http://***@127.0.0.1" in str(storage)


def test_missing_and_refused_are_told_apart(server: RangeServer, storage: Storage) -> None:
    with pytest.raises(MissingFileError):
        storage.size("b.pcr")
    for status in (401, 403):
        misbehave(server, None, status=status)
        for attempt in (lambda: storage.read("a.pcr", 0, 10), lambda: storage.size("a.pcr")):
            with pytest.raises(RefusedError, match=f"refuses access .{status}.*in the environment"):
                attempt()


def test_encodings_that_change_no_byte_are_let_pass() -> None:
    for encoding in ("", "identity", "Identity", "aws-chunked"):
        require_record("here", {"Content-Encoding": encoding})
    for encoding in ("gzip", "br", "x" * 1000):
        with pytest.raises(StorageError, match="compressed") as raised:
            require_record("here", {"Content-Encoding": encoding})
        assert len(str(raised.value)) < 300


def test_a_body_may_come_in_any_parts() -> None:
    body = Body("here", 5)
    for part in (b"ab", b"", memoryview(b"cde")):
        body.add(part)
    assert body.whole(at_start=True) == b"abcde"
    with pytest.raises(StorageError, match="more than the 5 requested bytes"):
        body.add(b"f")
    page = Body("here", 50)
    page.add(b"  <HTML>")
    assert page.whole(at_start=False) == b"  <HTML>", "in the middle of a file it may stand by chance"
    with pytest.raises(StorageError, match="web page"):
        page.whole(at_start=True)


def test_a_tag_may_be_missing_and_may_be_forgotten() -> None:
    tags = SeenTags()
    tags.require_same("a", "1")
    tags.require_same("a", None)
    with pytest.raises(StorageError, match="a was replaced while it was in use"):
        tags.require_same("a", "2")
    tags.forget("a")
    tags.require_same("a", "2")


def test_what_a_server_sends_is_quoted_in_short() -> None:
    error = failures.other("here", ValueError("bad status line: " + "x" * 10**6 + "\nstate"), " Twice.")
    assert str(error).startswith("here cannot be read: ValueError: bad status line: xxx")
    assert str(error).endswith("xxx.... Twice.") and len(str(error)) < 400
