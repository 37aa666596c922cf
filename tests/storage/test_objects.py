"""obstore on a server that misbehaves once or always, over S3's protocol and plain HTTP."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_http_server import RangeServer, range_server

from pcr_exp.config.records import RecordsConfig
from pcr_exp.errors import ConfigError, StorageError
from pcr_exp.storage import object_errors, objects
from pcr_exp.storage.hub import HubStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.objects import ObjectStorage
from pcr_exp.storage.open import open_remote, open_root
from pcr_exp.storage.remote import FsspecStorage

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'pcr-exp[remote]'")
pytest.importorskip("tenacity", reason="tenacity is not installed: pip install 'pcr-exp[remote]'")

from pcr_exp.storage import retry

CONTENT = bytes(range(256)) * 40
PASSING: dict[str, dict[str, Any]] = {
    "too many requests": {"status": 429},
    "internal error": {"status": 500},
    "unavailable": {"status": 503},
    "reset": {"resets": True},
    "reset in mid-body": {"resets_in_body": True},
    "cut short": {"cut_short": True},
    "stalled in mid-body": {"stall_s": 0.5},
    "silent": {"silent_s": 0.5},
}
LASTING = [
    ({"status": 401}, r"the server refuses access \(401 Unauthorized.*credentials"),
    (
        {"status": 403},
        r"the server refuses access \(403 Forbidden\)\. Check the address, and the credentials",
    ),
    ({"status": 404}, r"a\.pcr does not exist\. Check the address"),
    ({"status": 501}, "501"),
    ({"knows_ranges": False}, "the server ignores range requests and sends whole files"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a.pcr").write_bytes(CONTENT)
    (tmp_path / "bucket" / "login.html").write_text("<html>Who are you?</html>")
    with range_server(tmp_path) as running:
        yield running


@pytest.fixture(params=["s3", "http"])
def storage(
    request: pytest.FixtureRequest, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> ObjectStorage:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.01)
    monkeypatch.setattr(objects, "SILENCE_TIMEOUT_S", 0.2)
    return open_on(server, request.param)


def open_on(server: RangeServer, protocol: str) -> ObjectStorage:
    if protocol == "http":
        return ObjectStorage(f"{server.url}/bucket")
    return ObjectStorage("s3://bucket", {"endpoint": server.url, "region": "here", "skip_signature": True})


def misbehave(server: RangeServer, num_bad: int | None, **how: Any) -> None:
    server.num_bad = num_bad
    for name, value in how.items():
        setattr(server, name, value)


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 10), (5000, 240), (len(CONTENT) - 3, 100), (len(CONTENT), 9)]
)
def test_a_read_is_one_request_of_exactly_its_bytes(
    server: RangeServer, storage: ObjectStorage, offset: int, length: int
) -> None:
    assert storage.read("a.pcr", offset, length) == CONTENT[offset : offset + length]
    assert server.requests == [("GET", "/bucket/a.pcr", f"bytes={offset}-{offset + length - 1}")]
    assert storage.read("a.pcr", 7, 0) == b""
    assert storage.size("a.pcr") == len(CONTENT)
    assert [method for method, *_ in server.requests] == ["GET", "HEAD"]


@pytest.mark.parametrize("fault", PASSING)
def test_what_fails_twice_is_asked_for_three_times_and_counted(
    server: RangeServer, storage: ObjectStorage, fault: str
) -> None:
    # One more request finds out whether the server asks to wait, once for both failures.
    num_looks = int(storage.url.startswith("http") and PASSING[fault].get("status") in (429, 503))
    misbehave(server, 2 + num_looks, **PASSING[fault])
    assert storage.read("a.pcr", 100, 1000) == CONTENT[100:1100]
    assert [one for one in server.requests if one[0] == "GET"] == [
        ("GET", "/bucket/a.pcr", "bytes=100-1099")
    ] * 3
    assert len(server.requests) == 3 + num_looks
    assert storage.counts().num_retries == 2


def test_what_always_fails_is_given_up(server: RangeServer, storage: ObjectStorage) -> None:
    misbehave(server, None, status=503)
    with pytest.raises(StorageError, match=r"a\.pcr cannot be read: .*503.*It was tried 7 times in"):
        storage.read("a.pcr", 0, 1000)
    assert [method for method, *_ in server.requests].count("GET") == 7


@pytest.mark.parametrize(("fault", "words"), LASTING, ids=lambda value: str(value)[:20])
def test_what_will_not_pass_is_asked_for_once(
    server: RangeServer, storage: ObjectStorage, fault: dict[str, Any], words: str
) -> None:
    misbehave(server, None, **fault)
    with pytest.raises(StorageError, match=words):
        storage.read("a.pcr", 0, 10)
    looks_for_a_page = storage.url.startswith("http") and "knows_ranges" in fault
    assert len(server.requests) == 1 + looks_for_a_page
    assert storage.counts().num_retries == 0


def test_an_object_that_is_replaced_meanwhile_is_an_error(
    server: RangeServer, storage: ObjectStorage
) -> None:
    storage.read("a.pcr", 0, 10)
    misbehave(server, None, revision=7)
    with pytest.raises(
        StorageError, match=r'a\.pcr was replaced while it was in use: its ETag is "7", .* was "0"'
    ):
        storage.read("a.pcr", 10, 10)
    assert storage.counts().num_retries == 0


def test_missing_objects_and_web_pages_are_called_so(storage: ObjectStorage) -> None:
    assert storage.size_or_none("b.pcr") is None
    with pytest.raises(StorageError, match=r"b\.pcr does not exist"):
        storage.size("b.pcr")
    with pytest.raises(
        StorageError, match=r"the server answers with a web page instead of a record\. It may be a login page"
    ):
        storage.read("login.html", 0, 10)


def test_a_server_that_is_gone_and_one_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.001)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = ObjectStorage(f"http://127.0.0.1:{unused.getsockname()[1]}/records")
        with pytest.raises(StorageError, match=r"a\.pcr cannot be read: .*It was tried 7 times"):
            gone.read("a.pcr", 0, 10)
    unknown = ObjectStorage("http://nowhere.invalid/records")
    with pytest.raises(StorageError, match=r"its server name does not resolve \(DNS\)\. Check the address"):
        unknown.read("a.pcr", 0, 10)
    assert unknown.counts().num_retries == 0


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({"AWS_ENDPOINT_URL": "{url}"}, {}),
        ({"AWS_ENDPOINT_URL_S3": "{url}"}, {}),
        ({"AWS_ENDPOINT": "{url}"}, {}),
        ({"AWS_ENDPOINT": "{url}", "AWS_ALLOW_HTTP": "true"}, {}),
        ({}, {"endpoint_url": "{url}"}),
        ({}, {"aws_endpoint": "{url}"}),
        ({}, {"endpoint": "{url}", "allow_http": True}),
    ],
    ids=str,
)
def test_a_server_without_tls_is_named_in_each_way_that_the_client_knows(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: dict[str, Any]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(url=server.url))
    given = {
        name: value.format(url=server.url) if isinstance(value, str) else value
        for name, value in options.items()
    }
    storage = ObjectStorage("s3://bucket", {"region": "here", "skip_signature": True, **given})
    assert storage.read("a.pcr", 3, 9) == CONTENT[3:12]


def test_requests_go_through_a_proxy_that_is_named(server: RangeServer) -> None:
    elsewhere = "http://elsewhere.invalid"
    options = {"endpoint": elsewhere, "proxy_url": server.url, "region": "here", "skip_signature": True}
    with pytest.raises(StorageError, match=r"a\.pcr does not exist"):
        ObjectStorage("s3://bucket", options).read("a.pcr", 0, 1)
    assert server.requests[0][1] == f"{elsewhere}/bucket/a.pcr"


def test_an_address_that_may_not_be_asked_without_tls_is_told_at_once(
    server: RangeServer,
) -> None:
    options = {"endpoint": server.url, "allow_http": False, "region": "here", "skip_signature": True}
    storage = ObjectStorage("s3://bucket", options)
    with pytest.raises(StorageError, match=r"a\.pcr cannot be read"):
        storage.read("a.pcr", 0, 1)
    assert storage.counts().num_retries == 0


def test_options_that_make_the_client_panic_are_named() -> None:
    with pytest.raises(StorageError, match=r"s3://bucket cannot be opened: .*aws_"):
        ObjectStorage("s3://bucket", {"timeout": "5s"})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes a certificate, is missing")
def test_a_certificate_that_nobody_knows_is_called_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", "key", "-out", "certificate"], cwd=tmp_path, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    (tmp_path / "a.pcr").write_bytes(CONTENT)
    with range_server(tmp_path) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        monkeypatch.setenv("HF_ENDPOINT", url)
        for storage in (ObjectStorage(url), HubStorage("hf://datasets/a/b")):
            with pytest.raises(StorageError, match=r"cannot be read: its TLS certificate is not trusted"):
                storage.read("a.pcr", 0, 10)
            assert storage.counts().num_retries == 0


def test_dns_that_fails_for_the_moment_may_pass() -> None:
    from obstore.exceptions import GenericError

    assert object_errors.is_passing(
        GenericError("HTTP error: dns error: Temporary failure in name resolution")
    )
    assert not object_errors.is_passing(GenericError("HTTP error: dns error: Name or service not known"))
    assert not object_errors.is_passing(ValueError("HTTP error, but a defect of ours"))
    assert not object_errors.is_passing(StorageError("ours"))


def test_who_reads_what(tmp_path: Path) -> None:
    assert isinstance(open_root(RecordsConfig(root=str(tmp_path))), LocalStorage)
    assert isinstance(open_remote("s3://bucket", options={"region": "here"}), ObjectStorage)
    assert isinstance(open_remote("http://127.0.0.1:1"), ObjectStorage)
    assert isinstance(open_remote("http://127.0.0.1:1", "fsspec"), FsspecStorage)
    assert isinstance(open_remote("memory://records"), FsspecStorage)
    with pytest.raises(
        StorageError, match=r"storage_client=obstore supports only s3://, .* Set it to auto or fsspec"
    ):
        open_remote("memory://records", "obstore")
    with pytest.raises(StorageError, match=r"s3://bucket cannot be opened: .*colour"):
        open_remote("s3://bucket", options={"colour": "red"})


def test_secrets_do_not_belong_into_the_configuration() -> None:
    for key, options in (
        ("secret_access_key", {"region": "here", "secret_access_key": "Xy1"}),
        (
            r"client_kwargs\.aws_secret_access_key",
            {"client_kwargs": {"anon": False, "aws_secret_access_key": "Xy1"}},
        ),
        (r"client_kwargs\.headers\.Authorization", {"client_kwargs": {"headers": {"Authorization": "Xy1"}}}),
        (r"sas_token", {"sas_token": "Xy1"}),
        (r"connection_string", {"connection_string": "AccountKey=Xy1"}),
        (r"auth", {"auth": ["me", "Xy1"]}),
        (r"endpoint", {"endpoint": "https://me:Xy1@host"}),
    ):
        with pytest.raises(ConfigError, match=rf"storage_options\.{key}='\*\*\*'.*environment") as raised:
            RecordsConfig(storage_options=options)
        assert "Xy1" not in str(raised.value)
    for root in ("https://me:Xy1@host/records", "az://container/records?sv=1&sig=Xy1"):
        with pytest.raises(ConfigError, match=r"records\.root='.*\*\*\*.*environment") as raised:
            RecordsConfig(root=root)
        assert "Xy1" not in str(raised.value)
    RecordsConfig(storage_options={"region": "here", "skip_signature": True, "aws_sse_kms_key_id": "a"})
    with pytest.raises(ConfigError, match=r"records\.storage_client"):
        RecordsConfig(storage_client="curl")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_is_told_that_the_client_did_not_survive(server: RangeServer) -> None:
    """This runs in its own process, which first reads and then forks; unguarded, the child would hang."""
    program = f"""
    import os
    from pcr_exp.errors import StorageError
    from pcr_exp.storage.objects import ObjectStorage
    from pcr_exp.storage.open import open_remote
    storage = ObjectStorage("{server.url}/bucket")
    storage.read("a.pcr", 0, 10)
    if os.fork() == 0:
        try:
            storage.read("a.pcr", 0, 10)
        except StorageError as error:
            print(error, type(open_remote("{server.url}/bucket")).__name__, flush=True)
        os._exit(0)
    os.wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert (
        "does not survive a fork. Start worker processes with multiprocessing_context='forkserver'"
        in done.stdout
    )
    assert done.stdout.split()[-1] == "FsspecStorage"


@pytest.mark.parametrize(
    ("address", "options", "environment"),
    [
        ("s3://bucket", {"endpoint": "http://127.0.0.1:1"}, {}),
        ("s3://bucket", {}, {"AWS_SKIP_SIGNATURE": "true"}),
        ("gs://bucket", {}, {"GOOGLE_SKIP_SIGNATURE": "1"}),
        ("az://container", {}, {"AZURE_STORAGE_ACCOUNT_NAME": "me"}),
    ],
)
def test_where_no_other_client_reads_as_obstore_did_the_fork_is_named(
    monkeypatch: pytest.MonkeyPatch, address: str, options: dict[str, Any], environment: dict[str, str]
) -> None:
    monkeypatch.setattr(objects, "_client_process", os.getpid() + 1)
    monkeypatch.setitem(sys.modules, "adlfs", None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=r"was forked .*multiprocessing_context='forkserver'"):
        open_remote(address, options=options)


def test_without_obstore_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(
        StorageError, match=r"needs a client that is not installed.*pip install 'pcr-exp\[remote\]'"
    ):
        ObjectStorage("s3://bucket")
