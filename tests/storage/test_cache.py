"""The cache that grows: what it saves, its limit, several processes, crashes and damage."""

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pcr_exp.config.storage import StorageConfig
from pcr_exp.errors import ConfigError, StorageError
from pcr_exp.storage.cache import CachedStorage, DiskCache, MemoryCache, PrefixCache, open_cache
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

CONTENT = bytes(range(256)) * 40
"""Of every record."""


@pytest.fixture
def records(tmp_path: Path) -> CountingStorage:
    for name in ("a.pcr", "b.pcr", "c.pcr", "index.json"):
        (tmp_path / name).write_bytes(CONTENT)
    return CountingStorage(LocalStorage(tmp_path))


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> PrefixCache:
    return MemoryCache(10_000) if request.param == "memory" else DiskCache(tmp_path / "cache", 10_000)


def test_a_higher_group_reads_only_what_is_missing(records: CountingStorage, cache: PrefixCache) -> None:
    storage = CachedStorage(records, cache)
    for length, num_reads, bytes_read in ((1000, 1, 1000), (1000, 1, 1000), (400, 1, 1000), (3000, 2, 3000)):
        assert storage.read("a.pcr", 0, length) == CONTENT[:length]
        assert (records.num_reads, records.bytes_read) == (num_reads, bytes_read)
    assert storage.read("a.pcr", 1000, 4000) == CONTENT[1000:5000], "an extension of a prefix"
    assert records.bytes_read == 5000
    assert storage.read("b.pcr", 1000, 500) == CONTENT[1000:1500], "of what is not kept: as it was asked for"
    assert storage.cached_bytes == 1000 + 400 + 1000 + 2000
    for _ in range(2):
        assert storage.read("index.json", 0, 10) == CONTENT[:10]
    assert records.num_reads == 6
    assert storage.size("a.pcr") == len(CONTENT)


def test_the_limit_is_met_to_the_byte_and_nothing_is_evicted(
    records: CountingStorage, cache: PrefixCache
) -> None:
    storage = CachedStorage(records, cache)
    for _ in range(3):
        for name in ("a.pcr", "b.pcr", "c.pcr"):
            assert storage.read(name, 0, 6000) == CONTENT[:6000]
    assert cache.num_bytes == 10_000  # type: ignore[attr-defined]
    assert records.bytes_read == 18_000 + 2 * 8_000, "every byte kept saves a byte an epoch"


def test_what_may_be_kept_can_be_planned(records: CountingStorage, cache: PrefixCache) -> None:
    storage = CachedStorage(records, cache)
    storage.may_keep = {"a.pcr": 700, "b.pcr": 0, "c.pcr": 0}.get
    for _ in range(2):
        assert storage.read("a.pcr", 0, 1000) == CONTENT[:1000]
        assert storage.read("b.pcr", 0, 1000) == CONTENT[:1000]
    assert (records.num_reads, records.bytes_read) == (4, 3300)


def test_processes_share_a_folder_and_its_limit(tmp_path: Path, records: CountingStorage) -> None:
    one, other = (CachedStorage(records, DiskCache(tmp_path / "cache", 9_000)) for _ in range(2))
    with ThreadPoolExecutor(8) as pool:
        reads = [
            pool.submit(storage.read, name, 0, length)
            for length in (500, 2000, 4000)
            for name in ("a.pcr", "b.pcr", "c.pcr")
            for storage in (one, other)
        ]
        assert all(CONTENT.startswith(read.result()) for read in reads)
    kept = [len(DiskCache(tmp_path / "cache", 9_000).get(name)) for name in ("a.pcr", "b.pcr", "c.pcr")]
    assert sum(kept) == 9_000
    records.num_reads = 0
    again = CachedStorage(records, DiskCache(tmp_path / "cache", 9_000))
    again.read("a.pcr", 0, kept[0])
    assert records.num_reads == 0


def test_a_process_that_was_given_less_keeps_nothing_more(tmp_path: Path, records: CountingStorage) -> None:
    CachedStorage(records, DiskCache(tmp_path / "cache", 9_000)).read("a.pcr", 0, 6000)
    less = DiskCache(tmp_path / "cache", 5_000)
    CachedStorage(records, less).read("b.pcr", 0, 6000)
    assert (less.get("b.pcr"), less.num_bytes) == (b"", 6000)


def test_what_a_crash_leaves_behind_does_no_harm(
    tmp_path: Path, records: CountingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cache"
    storage = CachedStorage(records, DiskCache(folder, 10_000))
    storage.read("a.pcr", 0, 1000)
    (folder / "a.pcr.prefix").write_bytes((folder / "a.pcr.prefix").read_bytes()[:500])  # not synced in time
    (folder / "b.pcr.prefix.tmp").write_bytes(b"half of it")
    (folder / "used").write_text("9999")
    reopened = DiskCache(folder, 10_000)
    assert not (folder / "b.pcr.prefix.tmp").exists()
    assert reopened.num_bytes == 492
    with caplog.at_level(logging.WARNING, "pcr_exp"):
        assert CachedStorage(records, reopened).read("a.pcr", 0, 1000) == CONTENT[:1000]
    assert "is damaged, and is read anew" in caplog.text
    assert reopened.get("a.pcr") == CONTENT[:1000]
    assert reopened.num_bytes == 1000


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from pcr_exp.storage.cache import DiskCache
cache = DiskCache(Path({str(tmp_path / "cache")!r}), 1000)
cache._lock.acquire()
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 9
    DiskCache(tmp_path / "cache", 1000).put("a.pcr", b"abc")
    assert DiskCache(tmp_path / "cache", 1000).get("a.pcr") == b"abc"


def test_a_disk_that_refuses_costs_reads_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path / "cache", 10_000)
    (tmp_path / "cache" / "deep").write_text("a file where a folder is wanted")
    cache.put("deep/a.pcr", b"abc")
    assert "keeps nothing more" in caplog.text
    assert cache.get("deep/a.pcr") == b""
    with pytest.raises(StorageError, match="cannot be written"):
        DiskCache(tmp_path / "cache" / "deep" / "deeper", 1)


def test_where_a_cache_may_lie(tmp_path: Path) -> None:
    assert isinstance(open_cache("memory", 10, "key"), MemoryCache)
    one, other = (open_cache(str(tmp_path / "c"), 100, key) for key in ("one", "other"))
    one.put("a.pcr", b"abc")
    assert (one.get("a.pcr"), other.get("a.pcr")) == (b"abc", b"")
    with pytest.raises(StorageError, match=r"storage\.cache='s3://b': wanted memory, or a local folder"):
        open_cache("s3://b", 10, "key")
    for settings in ({"cache": "memory"}, {"cache_mib": 5.0}, {"cache": "memory", "cache_mib": -1.0}):
        with pytest.raises(ConfigError, match=r"storage\.cache_mib"):
            StorageConfig(name="cached", **settings)  # type: ignore[arg-type]
