"""Encodes that are killed, fill the disk, or run at the same time."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records_encoding import GOOD, encode, read_tree, write_images

from pcr_exp.config.scan_scripts import SCANS
from pcr_exp.errors import RecordError, StorageError
from pcr_exp.records import markers
from pcr_exp.records.encode import encode_lock
from pcr_exp.records.markers import RecordMarker, read_markers, write_marker
from pcr_exp.records.strict_json import UnfitError
from pcr_exp.system.atomic import write_atomic


def encode_and_die(folder: Path, source: Path, where: str, count: int) -> None:
    """Encode, and kill this process at the `count`-th occurrence of `where`. Runs in its own process."""
    calls = 0

    def kill_at(name: str) -> None:
        nonlocal calls
        calls += name == where
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: object, attribute: str, name: str) -> None:
        real = getattr(owner, attribute)

        def call(*args: Any, **kwargs: Any) -> Any:
            kill_at(f"before {name}")
            result = real(*args, **kwargs)
            kill_at(f"after {name}")
            return result

        setattr(owner, attribute, call)

    watch(Path, "replace", "rename")
    watch(os, "fsync", "sync")
    encode(write_images(source, GOOD), folder, progress=lambda *_: kill_at("image"))


# Renames: baseline, pcr and marker of 3 records; then rejected.csv (10th) and the indexes (11th, 12th).
MOMENTS = [
    ("image", 1),
    ("image", 6),
    ("before sync", 1),
    ("after rename", 1),
    ("before rename", 2),
    ("before rename", 3),
    ("after rename", 3),
    ("before rename", 5),
    ("after rename", 9),
    ("before rename", 10),
    ("after rename", 11),
    ("after rename", 12),
    ("after rename", 13),
]


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("unkilled")
    encode(write_images(folder / "in", GOOD), folder / "out")
    return read_tree(folder / "out")


@pytest.mark.parametrize(("where", "count"), MOMENTS)
def test_killed_and_continued_gives_the_same_bytes(
    where: str, count: int, unkilled: dict[str, bytes], tmp_path: Path
) -> None:
    process = multiprocessing.get_context("forkserver").Process(
        target=encode_and_die, args=(tmp_path / "out", tmp_path / "in", where, count)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    killed = read_tree(tmp_path / "out")
    assert killed != unkilled
    report = encode(write_images(tmp_path / "in", GOOD), tmp_path / "out")
    assert read_tree(tmp_path / "out") == unkilled
    assert report.num_images == 10
    assert report.num_turned == (None if (where, count) == ("after rename", 13) else 0)


def test_finished_records_are_not_made_again(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)

    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "out", progress=stop)
    first = tmp_path / "out/pcr/record-000000.pcr"
    inode = first.stat().st_ino
    encode(samples, tmp_path / "out")
    assert first.stat().st_ino == inode


def test_an_image_that_was_replaced_since_is_stored_as_it_is_now(tmp_path: Path) -> None:
    """The replacement has the same size, so the fingerprint of the encode does not reveal it."""
    samples = write_images(tmp_path / "in", GOOD)
    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "out", progress=_interrupt_at(9))
    content = bytearray(samples[0].path.read_bytes())
    content[15] ^= 1  # in the first segment, without effect on pixels
    samples[0].path.write_bytes(content)
    later_ns = time.time_ns() + 10**9
    os.utime(samples[0].path, ns=(later_ns, later_ns))
    encode(samples, tmp_path / "out")
    assert bytes(content) in (tmp_path / "out/baseline/record-000000.pcr").read_bytes()


def test_times_of_the_future_are_no_change(tmp_path: Path) -> None:
    """Those of files unpacked from a time zone ahead, for example."""
    samples = write_images(tmp_path / "in", GOOD)
    later_ns = time.time_ns() + 10**14
    for sample in samples:
        os.utime(sample.path, ns=(later_ns, later_ns))
    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "out", progress=_interrupt_at(9))
    first = tmp_path / "out/pcr/record-000000.pcr"
    inode = first.stat().st_ino
    encode(samples, tmp_path / "out")
    assert first.stat().st_ino == inode


def test_a_record_that_was_shortened_since_is_made_again(tmp_path: Path, unkilled: dict[str, bytes]) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "out", progress=_interrupt_at(9))
    os.truncate(tmp_path / "out/pcr/record-000000.pcr", 100)
    (tmp_path / "out/.receipts/record-000001.pcr.json").write_bytes(b"{")
    encode(samples, tmp_path / "out")
    assert read_tree(tmp_path / "out") == unkilled


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"header_bytes": {}}, "group_ends and header_bytes do not list exactly"),
        ({"num_samples": 0}, "group_ends and header_bytes do not list exactly nothing"),
        (
            {"field_ends": {"pcr": [9]}},
            "field_ends and field_header_bytes do not list all encodings, or none",
        ),
        ({"field_header_bytes": {"pcr": 9}}, "field_ends and field_header_bytes do not list all encodings"),
        ({"group_ends": {key: [] for key in SCANS}}, "group_ends or field_ends is empty"),
        ({"rejected": [["a.jpg"]]}, r"a row of rejected is not \[id, reason\]"),
    ],
)
def test_a_marker_that_contradicts_itself_is_not_used(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    ends = {encoding: [90] for encoding in SCANS}
    marker = RecordMarker("f00d", "beef", 0, 1, ends, dict.fromkeys(SCANS, 30), [], 0)
    for encoding in SCANS:
        (tmp_path / encoding).mkdir()
        (tmp_path / encoding / "record-000000.pcr").write_bytes(bytes(90))
    write_marker(tmp_path, marker)
    assert read_markers(tmp_path, "f00d") == {0: marker}
    write_marker(tmp_path, replace(marker, **changes))
    assert read_markers(tmp_path, "f00d") == {}
    (path,) = tmp_path.glob(".receipts/*")
    with pytest.raises(UnfitError, match=message):
        markers._parse_marker(path.read_bytes())


def test_what_an_encode_of_other_files_left_is_removed(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    with pytest.raises(KeyboardInterrupt):
        encode(samples, tmp_path / "out", images_per_record=2, progress=_interrupt_at(9))
    encode(samples[:4], tmp_path / "out")
    encode(samples[:4], tmp_path / "fresh")
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")


def _interrupt_at(number: int):  # type: ignore[no-untyped-def]
    def progress(done: int, _: int) -> None:
        if done == number:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("count", [1, 2, 5, 17, 23])
def test_a_full_disk_leaves_nothing_half_written(
    call: str, count: int, unkilled: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    real, calls = getattr(os, call), 0

    def full(descriptor: int, *args: object) -> object:
        nonlocal calls
        calls += 1
        if calls >= count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, *args)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(
            StorageError, match=r"disk mounted at /\S* is full \(No space left .*Free some space"
        ):
            encode(samples, tmp_path / "out")
    _check_leftovers(tmp_path / "out", unkilled)
    encode(samples, tmp_path / "out")
    assert read_tree(tmp_path / "out") == unkilled


def _check_leftovers(folder: Path, finished: dict[str, bytes]) -> None:
    """Check that there is no temporary file and no index of `pcr`, and that all records are whole."""
    for name, content in read_tree(folder).items():
        assert not name.endswith(".tmp")
        if name.endswith(".pcr"):
            assert content == finished[name]
        assert not name.startswith("pcr/index")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_a_disk_that_is_really_full(small_disk: Path, unkilled: dict[str, bytes], tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(120 * 1024))
    with pytest.raises(StorageError, match=rf"the disk mounted at {small_disk} is full"):
        encode(samples, small_disk / "out")
    assert (small_disk / "out/pcr/record-000000.pcr").exists()
    _check_leftovers(small_disk / "out", unkilled)
    filler.unlink()
    encode(samples, small_disk / "out")
    assert read_tree(small_disk / "out") == unkilled


def test_another_write_error_is_told_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "file").write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match=r"/file cannot be written: Input/output error\. Check the disk"):
        write_atomic(tmp_path / "file", [b"after"])
    assert read_tree(tmp_path) == {"file": b"before"}


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    write_atomic(tmp_path / "file", [b"", b"1234567", b"89"])
    assert (tmp_path / "file").read_bytes() == b"123456789"


def test_a_second_encoder_is_refused_by_pid(tmp_path: Path) -> None:
    samples = write_images(tmp_path / "in", GOOD)
    script = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parents[2])]!r}\n"
        "from pathlib import Path; from pcr_exp.records.encode import encode_lock\n"
        f"with encode_lock(Path({str(tmp_path / 'out')!r})): print('held', flush=True); sys.stdin.read()\n"
    )
    (tmp_path / "out").mkdir()
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RecordError, match=rf"being encoded by process {holder.pid} on .*\. Wait"):
        encode(samples, tmp_path / "out")
    holder.kill()
    holder.communicate()
    assert encode(samples, tmp_path / "out").num_images == 10
    assert not (tmp_path / "out/.encode.lock").exists()


def test_a_lock_that_its_holder_has_just_removed_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".encode.lock"
    real, calls = fcntl.flock, 0

    def holder_ends_between_open_and_lock(descriptor: int, operation: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            path.unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", holder_ends_between_open_and_lock)
    with encode_lock(tmp_path):
        with pytest.raises(RecordError, match=f"process {os.getpid()} on"), encode_lock(tmp_path):
            pass
        assert path.exists()
    assert not path.exists()


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".encode.lock").mkdir()
    with (
        pytest.raises(StorageError, match=r"\.encode\.lock cannot be written: Is a directory"),
        encode_lock(tmp_path),
    ):
        pass
