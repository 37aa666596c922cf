"""Servers that misbehave once or always: how often they are asked, and the final error."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from storage_http_server import RangeServer, range_server

from pcr_exp.config.loader import StorageConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import RecordError, StorageError
from pcr_exp.records.encode import encode_split
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage
from pcr_exp.storage.remote import FsspecStorage
from pcr_exp.storage.throttle import ReadCancelledError, interruptible

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'pcr-exp[remote]'")
pytest.importorskip("tenacity", reason="tenacity is not installed: pip install 'pcr-exp[remote]'")

from pcr_exp.storage import retry  # noqa: E402

CONTENT = bytes(range(256)) * 40
FAULTS: dict[str, dict[str, Any]] = {
    "too many requests": {"status": 429},
    "internal error": {"status": 500},
    "bad gateway": {"status": 502},
    "unavailable": {"status": 503},
    "of a cloud's own": {"status": 520},
    "reset": {"resets": True},
    "cut short": {"cut_short": True},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "a.pcr").write_bytes(CONTENT)
    (tmp_path / "login.html").write_text("<html>Who are you?</html>")
    with range_server(tmp_path) as running:
        yield running


@pytest.fixture
def storage(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.01)
    return FsspecStorage(server.url)


def misbehave(server: RangeServer, num_bad: int | None, **how: Any) -> None:
    server.num_bad = num_bad
    for name, value in how.items():
        setattr(server, name, value)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_twice_is_asked_for_three_times(
    server: RangeServer, storage: FsspecStorage, fault: str
) -> None:
    misbehave(server, 2, **FAULTS[fault])
    assert storage.read("a.pcr", 100, 1000) == CONTENT[100:1100]
    assert server.requests == [("GET", "/a.pcr", "bytes=100-1099")] * 3
    # aiohttp itself repeats a request once if its connection ends without an answer.
    assert storage.counts().num_retries == (1 if fault == "reset" else 2)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("too many requests", "429"),
        ("unavailable", "503"),
        ("reset", "Disconnected|reset"),
        ("cut short", "ClientPayloadError"),
    ],
)
def test_what_always_fails_is_given_up(
    server: RangeServer, storage: FsspecStorage, fault: str, words: str
) -> None:
    misbehave(server, None, **FAULTS[fault])
    with pytest.raises(StorageError, match=rf"a\.pcr cannot be read: .*({words}).*It was tried 7 times in"):
        storage.read("a.pcr", 0, 1000)
    assert len(server.requests) == (14 if fault == "reset" else 7)
    assert storage.counts().num_retries == 6


def test_a_size_is_asked_for_again_too(server: RangeServer, storage: FsspecStorage) -> None:
    misbehave(server, 4, status=503)  # the driver asks HEAD, then GET
    assert storage.size("a.pcr") == len(CONTENT)
    assert [method for method, *_ in server.requests] == ["HEAD", "GET"] * 2 + ["HEAD"]
    misbehave(server, None, status=503)
    with pytest.raises(StorageError, match=r"a\.pcr cannot be read: .*503.*It was tried 7 times"):
        storage.size("a.pcr")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "400"),
        (401, r"the server refuses access \(401 Unauthorized: .*environment: PCR_EXP_HTTP_AUTHORIZATION"),
        (403, r"the server refuses access \(403 Forbidden\)\. Check the address"),
        (404, None),
        (410, "410"),
        (501, "501"),
    ],
)
def test_what_will_not_pass_is_asked_for_once(
    server: RangeServer, storage: FsspecStorage, status: int, words: str | None
) -> None:
    misbehave(server, None, status=status)
    wanted = rf"a\.pcr.*: .*{words}" if words else r"a\.pcr does not exist\. Check the address"
    with pytest.raises(StorageError, match=wanted):
        storage.read("a.pcr", 0, 10)
    assert len(server.requests) == 1
    assert storage.counts().num_retries == 0
    with pytest.raises(StorageError, match=wanted):
        storage.size("a.pcr")
    assert len(server.requests) == 3, "HEAD and GET of the size"


def test_a_name_that_nobody_knows_is_told_at_once(
    storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    calls = []

    async def connect(*_: object, **__: object) -> None:
        calls.append(1)
        raise aiohttp.ClientConnectorError(SimpleNamespace(host="nowhere", port=80, ssl=True), unknown)

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", connect)
    with pytest.raises(StorageError, match=r"its server name does not resolve \(DNS\)\. Check the address"):
        storage.read("a.pcr", 0, 10)
    assert len(calls) == 1


def test_dns_that_fails_for_the_moment_may_pass() -> None:
    key = SimpleNamespace(host="somewhere", port=80, ssl=True)
    busy = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert retry.is_passing(aiohttp.ClientConnectorError(key, busy))
    refused = ConnectionRefusedError(111, "Connection refused")
    assert retry.is_passing(aiohttp.ClientConnectorError(key, refused)), "a server that is starting"
    assert retry.is_passing(TimeoutError())
    assert not retry.is_passing(aiohttp.ClientSSLError(key, OSError("bad certificate")))
    assert not retry.is_passing(aiohttp.InvalidURL("nonsense"))
    assert not retry.is_passing(StorageError("ours"))
    assert not retry.is_passing(ValueError("a defect"))


def test_a_server_says_how_long_to_wait(server: RangeServer, storage: FsspecStorage) -> None:
    misbehave(server, 1, status=429, headers={"Retry-After": "1"})
    started_s = time.monotonic()
    assert storage.read("a.pcr", 0, 10) == CONTENT[:10]
    assert time.monotonic() - started_s >= 1.0, "our own backoff is 0.02 s here"
    assert len(server.requests) == 2


def test_who_asks_for_more_than_our_patience_is_not_waited_for(
    server: RangeServer, storage: FsspecStorage
) -> None:
    misbehave(server, None, status=503, headers={"Retry-After": "3600"})
    started_s = time.monotonic()
    with pytest.raises(StorageError, match=r"503.*asks to wait 3600 s"):
        storage.read("a.pcr", 0, 10)
    assert time.monotonic() - started_s < 30
    assert len(server.requests) == 1


def test_retry_after_is_a_number_or_a_date() -> None:
    def asked(value: str | None) -> float | None:
        headers = {} if value is None else {"Retry-After": value}
        return retry.retry_after_s(SimpleNamespace(headers=headers))  # type: ignore[arg-type]

    assert asked("7") == 7
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    assert asked(later) == pytest.approx(50, abs=5)
    assert asked("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert asked("soon") is None
    assert asked(None) is None
    assert retry.retry_after_s(ValueError()) is None


def test_a_web_page_is_called_one(server: RangeServer, storage: FsspecStorage) -> None:
    page = (
        rf"{server.url}/login\.html: the server answers with a web page instead of a record\. "
        "It may be a login page"
    )
    with pytest.raises(StorageError, match=page):
        storage.read("login.html", 0, 10)
    misbehave(server, None, knows_ranges=False)
    with pytest.raises(StorageError, match=page):
        storage.read("login.html", 0, 10)
    with pytest.raises(StorageError, match=page):
        storage.size("login.html")
    assert storage.counts().num_retries == 0


def test_a_login_page_that_one_is_sent_on_to_is_named(server: RangeServer, storage: FsspecStorage) -> None:
    misbehave(server, 1, status=302, headers={"Location": "/login.html"})
    with pytest.raises(
        StorageError, match=rf"{server.url}/a\.pcr: .*after a redirect to {server.url}/login\.html"
    ):
        storage.read("a.pcr", 0, 10)


def test_retries_are_logged_and_counted(
    server: RangeServer, storage: FsspecStorage, caplog: pytest.LogCaptureFixture
) -> None:
    counting = CountingStorage(storage)
    misbehave(server, 3, status=503)
    with caplog.at_level(logging.WARNING, "pcr_exp"):
        counting.read("a.pcr", 0, 10)
    assert (counting.counts().num_retries, counting.num_reads, counting.bytes_read) == (3, 1, 10)
    (said,) = [record.getMessage() for record in caplog.records]  # only one of several within five seconds
    assert f"{server.url}/a.pcr: ClientResponseError: 503" in said
    assert "Attempt 2 of 7 follows in" in said and "(1 repeated so far)" in said
    throttled = open_storage(server.url, StorageConfig(name="slow", bandwidth_mib_per_s=1000))
    assert throttled.counts().num_retries == 0 and throttled.is_remote
    assert CountingStorage(LocalStorage(".")).counts().num_retries == 0


def test_waiting_to_try_again_can_be_cancelled(
    server: RangeServer, storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_S", 60.0)
    misbehave(server, None, status=503)
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    started_s = time.monotonic()
    with interruptible(stop), pytest.raises(ReadCancelledError, match="waited to be tried again"):
        storage.read("a.pcr", 0, 10)
    assert time.monotonic() - started_s < 30


@pytest.fixture
def records(server: RangeServer, storage: FsspecStorage) -> RecordSet:
    """One record of two grey images."""
    samples = []
    for i in range(2):
        path = server.folder / f"{i}.jpg"
        Image.new("L", (32, 32), 50 + 100 * i).save(path)
        samples.append(Sample(path.name, path, {"kind": i}))
    encode_split(
        samples,
        {"kind": ["dark", "bright"]},
        server.folder / "records",
        dataset="grey",
        split="train",
        images_per_record=2,
    )
    return RecordSet(storage, "records/pcr")


def test_bytes_that_were_flipped_on_their_way_are_read_once_more(
    server: RangeServer, records: RecordSet, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = records.read_prefix(0, 6).encoded(1)
    server.requests.clear()
    misbehave(server, 1, flips=True)
    with caplog.at_level(logging.WARNING, "pcr_exp"):
        assert records.read_prefix(0, 6).encoded(1) == wanted
    assert len(server.requests) == 2
    assert "It is read once more" in caplog.text
    misbehave(server, None, flips=True)
    with pytest.raises(
        RecordError, match=rf"It was read twice from {server.url}, and was damaged both times"
    ):
        records.read_prefix(0, 6)
    assert len(server.requests) == 4
