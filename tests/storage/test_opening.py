"""Addresses that cannot be opened fail soon, with the cause in the first line."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storage_http_server import RangeServer, range_server

import pcr_exp
from pcr_exp.errors import MissingFileError, PcrExpError, RecordError, RefusedError, StorageError
from pcr_exp.records.index_table import read_index
from pcr_exp.records.inspect import find_records, find_records_and_faults
from pcr_exp.storage import open as storage_open
from pcr_exp.storage.object_errors import explained, is_refusal
from pcr_exp.storage.objects import ObjectStorage
from pcr_exp.storage.protocol import Storage, is_opening, opening
from pcr_exp.storage.remote import FsspecStorage

for package in ("aiohttp", "obstore", "tenacity"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'pcr-exp[remote]'")

from pcr_exp.storage import retry  # noqa: E402

Client = type[ObjectStorage] | type[FsspecStorage]


@pytest.fixture(params=["obstore", "fsspec"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client that reads http:// during the test."""
    if request.param == "fsspec":
        monkeypatch.setattr(storage_open, "_has_obstore", lambda: False)
        return FsspecStorage
    return ObjectStorage


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}/x"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    with range_server(tmp_path) as running:
        yield running


OPENERS: list[Callable[[str], object]] = [pcr_exp.open, find_records, find_records_and_faults]


@pytest.mark.parametrize("open_records", OPENERS)
@pytest.mark.usefixtures("client")
def test_a_closed_port_is_told_in_about_a_second(
    refusing: str, open_records: Callable[[str], object], caplog: pytest.LogCaptureFixture
) -> None:
    started_s = time.monotonic()
    with pytest.raises(StorageError) as raised:
        open_records(refusing)
    assert time.monotonic() - started_s < 3, "half a second to a whole one between two tries"
    first_line = str(raised.value).splitlines()[0]
    wanted = rf"{refusing}/(pcr/)?index\.json cannot be read: nothing listens there \(connection refused\)\."
    assert re.match(rf"{wanted} It was tried 2 times", first_line)
    assert not caplog.records, "nothing comes before the cause"


@pytest.mark.usefixtures("client")
def test_a_run_asks_a_closed_port_as_often_as_ever(
    refusing: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.001)
    storage = client(refusing)
    with pytest.raises(StorageError, match="tried 7 times"):
        storage.read("a.pcr", 0, 10)
    with opening(), pytest.raises(StorageError, match="tried 2 times"):
        storage.read("a.pcr", 0, 10)
    assert storage.counts().num_retries == 6 + 1


@pytest.mark.parametrize("open_records", OPENERS)
@pytest.mark.usefixtures("client")
def test_a_name_that_nobody_knows_is_told_at_once(open_records: Callable[[str], object]) -> None:
    with pytest.raises(StorageError, match=r"^http://nowhere\.invalid/x/(pcr/)?index\.json cannot be read: "):
        open_records("http://nowhere.invalid/x")


def test_a_server_that_is_busy_is_asked_on_while_records_are_opened(
    server: RangeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.001)
    server.status = 500
    with opening(), pytest.raises(StorageError, match="tried 7 times"):
        client(server.url).size("a.pcr")


@pytest.mark.parametrize("open_records", OPENERS)
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.usefixtures("client")
def test_a_refusal_is_the_cause_and_each_name_is_asked_for_once(
    server: RangeServer, status: int, open_records: Callable[[str], object]
) -> None:
    server.status = status
    with pytest.raises(
        RefusedError, match=rf"^{server.url}/x/.*index\.json: the server refuses access .{status}"
    ):
        open_records(f"{server.url}/x")
    asked = [(method, path) for method, path, _ in server.requests]
    assert len(set(asked)) == len(asked)


@pytest.mark.usefixtures("client")
def test_where_there_is_nothing_both_names_are_told(server: RangeServer) -> None:
    with pytest.raises(RecordError, match=r"there is neither pcr/index\.json nor index\.json"):
        pcr_exp.open(f"{server.url}/x")
    with pytest.raises(RecordError, match="there are no records"):
        find_records(f"{server.url}/x")


def test_who_has_no_credentials_is_told_how_to_give_them(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.url)  # this machine may be in a cloud
    server.status = 403
    with pytest.raises(StorageError) as raised:
        pcr_exp.open("s3://bucket/x")
    first_line = str(raised.value).splitlines()[0]
    assert re.match(
        r"s3://bucket/x/pcr/index\.json cannot be read: no credentials were found, .*"
        r"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.*AWS_SKIP_SIGNATURE=true",
        first_line,
    )
    assert 1 <= len(server.requests) <= 2, "here, and not of the cloud"
    with pytest.raises(
        StorageError, match=r"az://c/x .*Account must .*environment: AZURE_STORAGE_ACCOUNT_NAME"
    ):
        pcr_exp.open("az://c/x")


@pytest.mark.parametrize(
    ("address", "text", "variable"),
    [
        ("gs://b/a", "GET http://169.254.169.254/computeMetadata/v1/instance", "GOOGLE_APPLICATION_CREDENT"),
        ("az://c/a", "Error performing token request: GET http://", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("s3://b/a", "PUT http://169.254.169.254/latest/api/token in 10s - HTTP error: timed", "AWS_ACCESS"),
    ],
)
def test_a_client_that_looks_for_credentials_in_a_cloud_has_none(
    address: str, text: str, variable: str
) -> None:
    from obstore.exceptions import GenericError

    error = GenericError(f"Generic error: Error performing {text}\n\nDebug source: ...")
    assert re.match(
        rf"{address} cannot be read: no credentials were found.*{variable}", str(explained(address, error))
    )
    assert is_refusal(error) and not is_refusal(GenericError("Error performing GET http://h/a: HTTP error"))


def test_the_error_of_an_index_begins_with_the_cause() -> None:
    class Refusing(Storage):
        def __init__(self, error: PcrExpError) -> None:
            self.error = error

        def size(self, path: str) -> int:  # noqa: ARG002
            assert is_opening()
            raise self.error

        def read(self, path: str, offset: int, length: int) -> bytes:
            raise AssertionError((path, offset, length))

    with pytest.raises(StorageError, match=r"^the server is down"):
        read_index(Refusing(StorageError("the server is down.")), "x")
    with pytest.raises(RecordError, match=r"^no records can be opened at x/index\.json: not there"):
        read_index(Refusing(MissingFileError("not there.")), "x")
    assert not is_opening()


def test_only_the_thread_that_opens_does() -> None:
    seen = []
    with opening():
        with opening():
            pass
        thread = threading.Thread(target=lambda: seen.append(is_opening()))
        thread.start()
        thread.join()
        assert is_opening() and seen == [False]
    assert not is_opening()
