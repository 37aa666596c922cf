"""Range reads over HTTP, from a server that the test starts."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from storage_http_server import RangeServer, range_server

from pcr_exp.errors import StorageError
from pcr_exp.storage import remote, retry
from pcr_exp.storage.remote import FsspecStorage

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'pcr-exp[remote]'")

REPO = Path(__file__).parents[2]
CONTENT = bytes(range(256)) * 40
RANGES = [(0, 10), (0, len(CONTENT)), (5000, 5240), (len(CONTENT) - 3, 100), (len(CONTENT), 10), (7, 0)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.pcr").write_bytes(CONTENT)
    with range_server(tmp_path) as running:
        yield running


@pytest.fixture
def storage(server: RangeServer) -> FsspecStorage:
    return FsspecStorage(server.url)


@pytest.mark.parametrize(("offset", "length"), RANGES)
def test_a_read_is_one_request_of_exactly_its_bytes(
    server: RangeServer, storage: FsspecStorage, offset: int, length: int
) -> None:
    assert storage.read("train/a.pcr", offset, length) == CONTENT[offset : offset + length]
    wanted = [("GET", "/train/a.pcr", f"bytes={offset}-{offset + length - 1}")] if length else []
    assert server.requests == wanted


def test_threads_read_at_the_same_time(server: RangeServer, storage: FsspecStorage) -> None:
    """Fetch-ahead may want this many reads; the driver's own limit would be 100."""
    server.together = threading.Barrier(120)
    with ThreadPoolExecutor(120) as pool:
        reads = [pool.submit(storage.read, "train/a.pcr", i, 50) for i in range(120)]
        assert [read.result() for read in reads] == [CONTENT[i : i + 50] for i in range(120)]


def test_size(server: RangeServer, storage: FsspecStorage) -> None:
    assert storage.size("train/a.pcr") == len(CONTENT)
    assert [method for method, *_ in server.requests] == ["HEAD"]


def test_a_missing_file_is_named(server: RangeServer, storage: FsspecStorage) -> None:
    for attempt in (lambda: storage.read("train/b.pcr", 0, 10), lambda: storage.size("train/b.pcr")):
        with pytest.raises(StorageError, match=rf"{server.url}/train/b\.pcr does not exist"):
            attempt()


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (5000, 10**6)])
def test_a_server_without_ranges_is_said_so(
    server: RangeServer, storage: FsspecStorage, offset: int, length: int
) -> None:
    server.knows_ranges = False
    with pytest.raises(StorageError, match=r"train/a\.pcr: the server ignores range requests"):
        storage.read("train/a.pcr", offset, length)


def test_nobody_listening_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.01)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        storage = FsspecStorage(f"http://127.0.0.1:{unused.getsockname()[1]}/records")
        for attempt in (lambda: storage.read("a.pcr", 0, 10), lambda: storage.size("a.pcr")):
            with pytest.raises(StorageError, match=r"records/a\.pcr cannot be read: .*onnect"):
                attempt()


@pytest.mark.alone
def test_silence_ends_as_an_error(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(retry, "PATIENCE_S", 0.0)
    server.delay_s = 1.0
    started = time.monotonic()
    with pytest.raises(StorageError, match=r"train/a\.pcr cannot be read: .*does not answer"):
        FsspecStorage(server.url).read("train/a.pcr", 0, 10)
    assert time.monotonic() - started < 0.9


def test_without_the_driver_it_is_said_what_to_install() -> None:
    """This runs in a fresh interpreter, where the driver is made unavailable before it is imported."""
    program = """
import sys
sys.modules["aiohttp"] = None  # as if it were not installed
from pcr_exp.errors import StorageError
from pcr_exp.storage.remote import FsspecStorage
try:
    FsspecStorage("http://127.0.0.1:9/records")
except StorageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPO, check=True
    )
    assert done.stdout.startswith("http://127.0.0.1:9/records needs a driver that is not installed")
    assert "pip install 'pcr-exp[remote]'" in done.stdout
