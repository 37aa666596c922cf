"""The growing cache: saved reads, its limit, several processes, crashes and damage."""

import errno
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import ConfigError, StorageError
from pcr_exp.storage.cache import (
    CACHE_FOLDER,
    CACHE_TAG,
    CachedStorage,
    DiskCache,
    MemoryCache,
    PrefixCache,
    open_cache,
)
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

CONTENT = bytes(range(256)) * 40
"""Content of every record."""


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
    storage = CachedStorage(records, cache, {"a.pcr": 700})
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
    folder = tmp_path / "cache" / CACHE_FOLDER
    storage = CachedStorage(records, DiskCache(folder.parent, 10_000))
    storage.read("a.pcr", 0, 1000)
    (folder / "a.pcr.prefix").write_bytes((folder / "a.pcr.prefix").read_bytes()[:500])  # not synced in time
    (folder / "b.pcr.prefix.tmp").write_bytes(b"half of it")
    (folder / "used").write_text("9999")
    reopened = DiskCache(folder.parent, 10_000)
    assert not (folder / "b.pcr.prefix.tmp").exists()
    assert reopened.num_bytes == 492
    with caplog.at_level(logging.WARNING, "pcr_exp"):
        assert CachedStorage(records, reopened).read("a.pcr", 0, 1000) == CONTENT[:1000]
    assert "is damaged, so its bytes are read from storage again" in caplog.text
    assert reopened.get("a.pcr") == CONTENT[:1000]
    assert reopened.num_bytes == 1000


def test_a_damaged_prefix_is_replaced_by_a_sound_one(tmp_path: Path, records: CountingStorage) -> None:
    cache = DiskCache(tmp_path / "cache", 10_000)
    storage = CachedStorage(records, cache)
    storage.read("a.pcr", 0, 1000)
    file = tmp_path / "cache" / CACHE_FOLDER / "a.pcr.prefix"
    file.write_bytes(bytes(file.stat().st_size))  # a power cut may keep the size and lose the content
    for _ in range(3):
        assert storage.read("a.pcr", 0, 1000) == CONTENT[:1000]
    assert records.num_reads == 2 and cache.num_bytes == 1000


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
    (tmp_path / "cache" / CACHE_FOLDER / "deep").write_text("a file where a folder is wanted")
    cache.put("deep/a.pcr", b"abc")
    assert "cannot store more" in caplog.text
    assert cache.get("deep/a.pcr") == b""
    with pytest.raises(StorageError, match="cannot be written"):
        DiskCache(tmp_path / "cache" / CACHE_FOLDER / "deep" / "deeper", 1)


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    """A folder full of someone's work, some of it named like the cache's own files."""
    folder = tmp_path / "home"
    (folder / "thesis" / "x.tmp").mkdir(parents=True)
    (folder / "y.prefix").mkdir()
    for name in ("thesis/ch1.tmp", "thesis/ch1.prefix", "a.pcr.prefix", "b.pcr.prefix.tmp", "lock", "used"):
        (folder / name).write_text(f"all of {name}")
    return folder


def contents(folder: Path) -> dict[str, str | None]:
    """Return every file with its text, and every folder, without the cache's."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in folder.rglob("*")
        if CACHE_FOLDER not in path.parts
    }


def test_a_cache_touches_nothing_but_its_own(thesis: Path, records: CountingStorage) -> None:
    before = contents(thesis)
    for _ in range(2):
        cache = DiskCache(thesis, 10_000)
        CachedStorage(records, cache).read("a.pcr", 0, 4000)
        assert cache.get("thesis/ch1") == b""
        assert cache.num_bytes == 4000, "what others keep is not counted"
        assert contents(thesis) == before
    own = thesis / CACHE_FOLDER
    assert own.stat().st_mode & 0o777 == 0o700
    assert (own / CACHE_TAG).read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    assert cache.forget("a.pcr") and not cache.forget("a.pcr")
    assert contents(thesis) == before


def test_what_is_no_file_of_the_cache_s_stays_in_its_folder_too(
    tmp_path: Path, records: CountingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    cache = DiskCache(tmp_path / "cache", 10_000)
    own = tmp_path / "cache" / CACHE_FOLDER
    victim = tmp_path / "victim"
    victim.write_text("a file of mine")
    (own / "a.pcr.prefix").mkdir()
    (own / "x.prefix.tmp").mkdir()
    (own / "y.prefix.tmp").symlink_to(victim)
    (own / "z.prefix").symlink_to(victim)
    (own / "c.pcr.prefix.tmp").symlink_to(victim)
    (own / "notes.tmp").write_text("mine")
    os.mkfifo(own / "b.pcr.prefix")
    before = sorted(own.iterdir())
    for reopened in (cache, DiskCache(tmp_path / "cache", 10_000)):
        for name in ("a.pcr", "b.pcr"):
            assert CachedStorage(records, reopened).read(name, 0, 1000) == CONTENT[:1000]
            assert reopened.get(name) == b"" and not reopened.forget(name)
        assert reopened.num_bytes == 0
        assert sorted(own.iterdir()) == before
    assert CachedStorage(records, cache).read("c.pcr", 0, 1000) == CONTENT[:1000]
    assert cache.get("c.pcr") == CONTENT[:1000]
    assert victim.read_text() == "a file of mine", "no link is followed"
    assert "cannot store more" in caplog.text and "cannot remove" in caplog.text


@pytest.mark.parametrize("what", ["a file in it", "a file", "a link", "another tag", "a folder as lock"])
def test_what_is_no_cache_is_refused_and_stays(tmp_path: Path, what: str) -> None:
    own = tmp_path / CACHE_FOLDER
    if what == "a file":
        own.write_text("work")
    elif what == "a link":
        (tmp_path / "elsewhere").mkdir()
        own.symlink_to(tmp_path / "elsewhere")
    elif what == "a folder as lock":
        DiskCache(tmp_path, 10)
        (own / "lock").unlink(missing_ok=True)
        (own / "lock").mkdir()
    else:
        own.mkdir(mode=0o700)
        (own / (CACHE_TAG if what == "another tag" else "work")).write_text("work")
    before = sorted(tmp_path.rglob("*"))
    wanted = {
        "a file in it": "is no cache of pcr-exp .* Move it away, or name another folder as storage",
        "another tag": "is no cache of pcr-exp",
        "a file": "is not a folder, so it is not used",
        "a link": "is a symbolic link, so it is not used",
        "a folder as lock": "lock cannot be written: Is a directory",
    }
    with pytest.raises(StorageError, match=wanted[what]):
        DiskCache(tmp_path, 10)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_of_that_name_becomes_the_cache(tmp_path: Path) -> None:
    (tmp_path / CACHE_FOLDER).mkdir()
    DiskCache(tmp_path, 10).put("a.pcr", b"abc")
    assert DiskCache(tmp_path, 10).get("a.pcr") == b"abc"
    assert [path.name for path in tmp_path.iterdir()] == [CACHE_FOLDER]


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    DiskCache(tmp_path, 10)
    tmp_path.chmod(0o777)
    with pytest.raises(StorageError, match=r"is writable by other users.*`chmod go-w"):
        DiskCache(tmp_path, 10)
    tmp_path.chmod(0o1777)  # sticky, like /tmp: nobody else can replace the folder
    DiskCache(tmp_path, 10)
    (tmp_path / CACHE_FOLDER).chmod(0o770)
    with pytest.raises(StorageError, match=rf"{CACHE_FOLDER} is writable by other users"):
        DiskCache(tmp_path, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_cache_of_another_user_is_refused(tmp_path: Path) -> None:
    DiskCache(tmp_path, 10)
    os.chown(tmp_path / CACHE_FOLDER, 12345, 12345)
    with pytest.raises(StorageError, match=r"belongs to another user \(uid 12345\)"):
        DiskCache(tmp_path, 10)


def test_processes_that_open_it_at_a_time_find_one_cache(tmp_path: Path) -> None:
    """Real processes begin together, and none finds the folder without its tag."""
    program = f"""
import sys
from pathlib import Path
from pcr_exp.storage.cache import DiskCache
print("ready", flush=True)
number = int(sys.stdin.readline())
for turn in range(20):
    cache = DiskCache(Path({str(tmp_path)!r}) / str(turn), 10_000)
    cache.put(f"{{number}}.pcr", bytes(100))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for number, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write(b"%d\n" % number)
        process.stdin.flush()
    assert [process.wait(60) for process in processes] == [0] * 4
    for process in processes:
        process.communicate()
    for turn in range(20):
        assert [path.name for path in (tmp_path / str(turn)).iterdir()] == [CACHE_FOLDER]
        cache = DiskCache(tmp_path / str(turn), 10_000)
        assert cache.num_bytes == 400
        assert all(cache.get(f"{number}.pcr") == bytes(100) for number in range(4))


def test_where_a_cache_may_lie(tmp_path: Path) -> None:
    assert isinstance(open_cache("memory", 10, "key"), MemoryCache)
    one, other = (open_cache(str(tmp_path / "c"), 100, key) for key in ("one", "other"))
    one.put("a.pcr", b"abc")
    assert (one.get("a.pcr"), other.get("a.pcr")) == (b"abc", b"")
    with pytest.raises(StorageError, match=r"storage\.cache='s3://b': wanted memory, or a local folder"):
        open_cache("s3://b", 10, "key")
    (tmp_path / "file").write_text("work")
    with pytest.raises(StorageError, match=r"storage\.cache='.*file': .*file cannot be written"):
        open_cache(str(tmp_path / "file"), 10, "key")
    for settings in ({"cache": "memory"}, {"cache_mib": 5.0}, {"cache": "memory", "cache_mib": -1.0}):
        with pytest.raises(ConfigError, match=r"storage\.cache_mib"):
            StorageConfig(name="cached", **settings)  # type: ignore[arg-type]


def test_a_full_disk_is_not_kept_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path / "cache", 10_000)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(DiskCache, "_write_used", full)
    cache.put("a.pcr", b"abc")
    assert not list(tmp_path.rglob("*.tmp")) and cache.get("a.pcr") == b""
