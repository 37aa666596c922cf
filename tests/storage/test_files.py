"""Local and remote range reads, and the counters around them."""

import os
import threading
import time
from pathlib import Path

import fsspec
import pytest

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage
from pcr_exp.storage.protocol import Counts, Joined, Storage
from pcr_exp.storage.remote import FsspecStorage
from pcr_exp.storage.throttle import ThrottledStorage

CONTENT = bytes(range(256)) * 40
RANGES = [(0, 10), (0, len(CONTENT)), (5000, 5240), (len(CONTENT) - 3, 100), (len(CONTENT), 10), (7, 0)]


@pytest.fixture(params=["local", "file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStorage | FsspecStorage:
    if request.param == "memory":
        fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/train/a.pcr", CONTENT)
        return FsspecStorage(f"memory://{tmp_path.name}/")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.pcr").write_bytes(CONTENT)
    return LocalStorage(tmp_path) if request.param == "local" else FsspecStorage(f"file://{tmp_path}")


@pytest.mark.parametrize(("offset", "length"), RANGES)
def test_a_range_is_what_a_slice_of_the_file_is(
    storage: LocalStorage | FsspecStorage, offset: int, length: int
) -> None:
    assert storage.read("train/a.pcr", offset, length) == CONTENT[offset : offset + length]


def test_a_length_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    """A damaged index may claim such a length; `pread` alone would first allocate all of it."""
    (tmp_path / "a.pcr").write_bytes(CONTENT)
    assert LocalStorage(tmp_path).read("a.pcr", 5, 2**47) == CONTENT[5:]
    assert LocalStorage(tmp_path).read("a.pcr", 2**40, 2**47) == b""


def test_size(storage: LocalStorage | FsspecStorage) -> None:
    assert storage.size("train/a.pcr") == len(CONTENT)


def test_a_missing_file_is_named(storage: LocalStorage | FsspecStorage) -> None:
    with pytest.raises(StorageError, match=r"train/b\.pcr does not exist"):
        storage.read("train/b.pcr", 0, 10)
    with pytest.raises(StorageError, match=r"train/b\.pcr does not exist"):
        storage.size("train/b.pcr")


def test_a_short_pread_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: whole(fd, min(length, 1000), offset))
    assert LocalStorage(tmp_path).read("a", 3, 5000) == CONTENT[3:5003]
    assert LocalStorage(tmp_path).read("a", 10000, 5000) == CONTENT[10000:]


def test_a_folder_cannot_be_read_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        LocalStorage(tmp_path.parent).read(tmp_path.name, 0, 10)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    assert LocalStorage(tmp_path).names("nothing") == set()
    with pytest.raises(StorageError, match="xxx cannot be listed: File name too long"):
        LocalStorage(tmp_path).names("x" * 300)


def test_a_driver_that_is_not_installed_or_unknown_is_said_so() -> None:
    with pytest.raises(StorageError, match="nosuchscheme"):
        FsspecStorage("nosuchscheme://bucket/x")
    fsspec.register_implementation("lacksdriver", "no_such_package.Filesystem", clobber=True)
    with pytest.raises(StorageError, match="driver that is not installed"):
        FsspecStorage("lacksdriver://bucket/x")


def test_errors_of_a_driver_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FsspecStorage(f"file://{tmp_path}")

    def refuse(*_: object, **__: object) -> bytes:
        raise RuntimeError("503 slow down")

    monkeypatch.setattr(storage._filesystem, "cat_file", refuse)
    with pytest.raises(StorageError, match=r"a\.pcr cannot be read: RuntimeError: 503 slow down"):
        storage.read("a.pcr", 0, 10)
    monkeypatch.setattr(storage._filesystem, "size", lambda _: None)
    with pytest.raises(StorageError, match="does not state its size"):
        storage.size("a.pcr")


def test_counters_add_up_over_threads(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    counting = CountingStorage(LocalStorage(tmp_path))

    def read() -> None:
        for i in range(200):
            counting.read("a", i, 50)
        counting.read("a", len(CONTENT) - 10, 50)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counting.num_reads == 8 * 201
    assert counting.bytes_read == 8 * (200 * 50 + 10)
    assert counting.busy_s > 0


class Overlapping(Storage):
    """Storage for three reads: from second 0 to 4, from 1 to 3 within it, and from 10 to 11."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.counting = CountingStorage(self, now=lambda: self.now_s)

    def read(self, path: str, offset: int, length: int) -> bytes:  # noqa: ARG002
        if path == "outer":
            self.now_s = 1.0
            self.counting.read("inner", 0, 5)
        self.now_s += {"outer": 1.0, "inner": 2.0, "later": 1.0}[path]
        return bytes(length)

    def size(self, path: str) -> int:  # noqa: ARG002
        return 0


def test_busy_seconds_count_once_however_many_reads_are_in_flight() -> None:
    storage = Overlapping()
    storage.counting.read("outer", 0, 7)
    assert storage.counting.counts() == Counts(num_requests=2, bytes_read=12, busy_s=4.0)
    storage.now_s = 10.0
    storage.counting.read("later", 0, 3)
    assert storage.counting.counts() == Counts(num_requests=3, bytes_read=15, busy_s=5.0)


def test_counters_pass_errors_and_sizes_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    counting = CountingStorage(LocalStorage(tmp_path))
    with pytest.raises(StorageError):
        counting.read("b", 0, 1)
    assert counting.size("a") == len(CONTENT)
    assert (counting.num_reads, counting.bytes_read, counting.busy_s) == (0, 0, 0.0)
    counting.read("a", 0, 5)
    ended = counting.counts()
    assert ended.bytes_read == 5
    time.sleep(0.05)
    counting.read("a", 0, 5)
    assert (counting.counts() - ended).busy_s < 0.05, "the read that failed is not in flight any more"


def test_joined_storages_are_told_apart_by_name_and_counted_together(tmp_path: Path) -> None:
    """Counts of each storage reach the run's rows, and a damaged file is forgotten in its own storage."""

    class Kept(CountingStorage):
        def forget(self, path: str) -> bool:
            return path == "train/a.pcr"

    each = {}
    for name, content in (("many", CONTENT), ("few", CONTENT[::-1])):
        folder = tmp_path / name / "train"
        folder.mkdir(parents=True)
        (folder / "a.pcr").write_bytes(content)
        each[name] = Kept(LocalStorage(tmp_path / name))
    joined = Joined(each)
    assert joined.read("few/train/a.pcr", 0, 9) == CONTENT[::-1][:9]
    ranges = [("many/train/a.pcr", 3, 5), ("few/train/a.pcr", 2, 4), ("many/train/a.pcr", 0, 1)]
    assert joined.read_many(ranges) == [CONTENT[3:8], CONTENT[::-1][2:6], CONTENT[:1]]
    assert joined.read_many(ranges[::2]) == [CONTENT[3:8], CONTENT[:1]]
    assert joined.size("many/train/a.pcr") == len(CONTENT)
    assert joined.names("few/train") == {"a.pcr"}
    assert joined.forget("few/train/a.pcr") and not joined.forget("few/train/b.pcr")
    found = joined.counts()
    assert (found.num_requests, found.bytes_read) == (6, 9 + 10 + 6)
    assert str(joined) == f"many: {tmp_path / 'many'}, few: {tmp_path / 'few'}"


def test_open_storage_wraps_only_what_is_limited(tmp_path: Path) -> None:
    unlimited = StorageConfig(name="unlimited")
    assert isinstance(open_storage(str(tmp_path), unlimited), LocalStorage)
    many = StorageConfig(name="unlimited", reads_in_flight=64)
    assert isinstance(open_storage(str(tmp_path), many), LocalStorage)
    assert isinstance(open_storage("memory://x", unlimited), FsspecStorage)
    for limit in (
        {"bandwidth_mib_per_s": 5.0},
        {"latency_ms": 1.0},
        {"seek_ms": 1.0},
        {"requests_per_s": 10.0},
    ):
        storage = open_storage(str(tmp_path), StorageConfig(name="slow", **limit))
        assert isinstance(storage, ThrottledStorage)
        assert isinstance(storage.inner, LocalStorage)


def test_ranks_that_name_one_bucket_share_it(tmp_path: Path) -> None:
    config = StorageConfig(name="slow", bandwidth_mib_per_s=1.0)
    storages = [open_storage(str(tmp_path), config, bucket=tmp_path / "bucket") for _ in range(2)]
    first, second = (storage.throttle.reserve(2**20) for storage in storages)
    assert second - first == 10**9
