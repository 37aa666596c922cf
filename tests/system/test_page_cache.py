"""The kernel's page cache of real files, inspected and dropped."""

import mmap
import os
from pathlib import Path

import pytest

from pcr_exp.storage.local import LocalStorage
from pcr_exp.system import machine as page_cache
from pcr_exp.system.machine import drop, resident_share, resident_share_of

NUM_PAGES = 64


def on_disk(path: Path) -> bool:
    """Return whether the file system is on a disk; an in-memory one cannot drop pages."""
    return os.major(path.stat().st_dev) != 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    if not on_disk(tmp_path):
        pytest.skip(f"{tmp_path} is on a file system in memory: give pytest a --basetemp on a disk")
    path = tmp_path / "a.pcr"
    path.write_bytes(os.urandom(NUM_PAGES * mmap.PAGESIZE - 100))
    return path


def test_what_was_written_is_resident_until_it_is_dropped(file: Path) -> None:
    assert resident_share(file) == 1.0
    assert drop([file]) == {}
    assert resident_share(file) == 0.0
    assert len(file.read_bytes()) == NUM_PAGES * mmap.PAGESIZE - 100
    assert resident_share(file) == 1.0


def test_the_share_counts_pages(file: Path) -> None:
    drop([file])
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(descriptor, 16 * mmap.PAGESIZE, 0)
    os.close(descriptor)
    assert resident_share(file) == 16 / NUM_PAGES


def test_storage_reads_no_further_than_it_is_asked_to(file: Path) -> None:
    """Disks are often set to read megabytes ahead, which would undo the savings of a prefix."""
    drop([file])
    LocalStorage(file.parent).read(file.name, 0, 16 * mmap.PAGESIZE)
    assert resident_share(file) == 16 / NUM_PAGES


def test_an_empty_file_has_nothing_resident(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert resident_share(tmp_path / "empty") == 0.0
    assert drop([tmp_path / "empty"]) == {}


def test_the_share_of_several_files_counts_their_bytes(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.write_bytes(bytes(file.stat().st_size // 3))
    drop([small])
    assert resident_share_of([file, small]) == pytest.approx(0.75, abs=1e-4)
    assert resident_share_of([]) == 0.0
    monkeypatch.setattr(page_cache, "resident_share", lambda path: None if path == small else 1.0)
    assert resident_share_of([file, small]) is None


def test_files_that_cannot_be_dropped_are_told_with_the_reason(file: Path) -> None:
    in_memory = Path("/dev/shm") / f"pcr-exp-test-{os.getpid()}"
    missing = file.with_name("missing")
    if not in_memory.parent.is_dir():
        pytest.skip("there is no /dev/shm here")
    in_memory.write_bytes(bytes(mmap.PAGESIZE))
    try:
        kept = drop([in_memory, missing, file])
    finally:
        in_memory.unlink()
    assert kept == {
        in_memory: "100% of it stays in memory (in use, or on a file system in memory)",
        missing: "No such file or directory",
    }
    assert resident_share(file) == 0.0


def test_somebody_elses_file_has_no_known_state(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would report all of it as resident."""
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert resident_share(file) is None
    assert drop([file]) == {file: "the kernel reports its cache state only to the file's owner"}


def test_elsewhere_than_on_linux_nothing_is_claimed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache.sys, "platform", "darwin")
    monkeypatch.delattr(os, "posix_fadvise")
    assert resident_share(file) is None
    assert drop([file]) == {file: "darwin has no posix_fadvise"}
