"""Files appear completely or not at all, whoever else writes them."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from pcr_exp.errors import StorageError
from pcr_exp.system.atomic import write_atomic

NUM_WRITES = 100
WRITER = f"""
import sys
from pathlib import Path
from pcr_exp.system.atomic import write_atomic
for _ in range({NUM_WRITES}):
    write_atomic(Path(sys.argv[1]), [sys.argv[2].encode() * 1000] * 20)
"""


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with ThreadPoolExecutor(1) as thread:

        def chunks() -> Iterator[bytes]:
            yield b"first, "
            later = thread.submit(write_atomic, path, [b"second"])
            with pytest.raises(TimeoutError):
                later.result(timeout=0.2)
            assert names_in(tmp_path) == ["file.tmp"]
            yield b"whole"

        write_atomic(path, chunks())
    assert path.read_bytes() == b"second" and names_in(tmp_path) == ["file"]


def test_processes_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    content = path.read_bytes()
    assert len(content) == 20_000 and len(set(content)) == 1
    assert names_in(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["file", "link", "hard link", "pipe"])
def test_what_lies_in_the_way_is_removed_and_not_written_to(tmp_path: Path, kind: str) -> None:
    users = tmp_path / "users"
    users.write_bytes(b"precious")
    left = tmp_path / "file.tmp"
    makers = {
        "file": lambda: left.write_bytes(b"of a killed process"),
        "link": lambda: left.symlink_to(users),
        "hard link": lambda: left.hardlink_to(users),
        "pipe": lambda: os.mkfifo(left),
    }
    makers[kind]()
    write_atomic(tmp_path / "file", [b"new"])
    assert (tmp_path / "file").read_bytes() == b"new" and users.read_bytes() == b"precious"
    assert names_in(tmp_path) == ["file", "users"]


def test_a_folder_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").mkdir()
    with pytest.raises(StorageError, match="file cannot be written"):
        write_atomic(tmp_path / "file", [b"new"])
    assert names_in(tmp_path) == ["file.tmp"]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_folders_that_cannot_be_synced_hold_the_file_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fails: bool
) -> None:
    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(StorageError, match="cannot be written") if fails else nullcontext():
        write_atomic(tmp_path / "file", [b"whole"])
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_writer_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, [b"old"])

    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, chunks())
    assert path.read_bytes() == b"old" and names_in(tmp_path) == ["file"]
