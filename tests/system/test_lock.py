"""The lock between real processes."""

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pcr_exp.errors import RunError, StorageError
from pcr_exp.system.lock import HOST_LOCK, hold, hold_host, is_held

HOLDER = """
import sys, time
from pathlib import Path
from pcr_exp.errors import RunError
from pcr_exp.system.lock import hold
with hold(Path(sys.argv[1]), RunError):
    print("held", flush=True)
    time.sleep(60)
"""

FORKING_HOLDER = """
import os, sys, time
from pathlib import Path
from pcr_exp.errors import RunError
from pcr_exp.system.lock import hold
with hold(Path(sys.argv[1]), RunError):
    print("held", flush=True)
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(60)
"""


@contextmanager
def held_elsewhere(path: Path, program: str = HOLDER) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_another_users_lock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may read a lock file, but not write to it. Root may do both, so the refusal is imitated."""
    opened = os.open

    def refuse_writing(path: Path, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags)

    path = tmp_path / "lock"
    assert not is_held(path)
    with held_elsewhere(path), monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse_writing)
        assert is_held(path)
    assert path.exists() and not is_held(path)


def test_a_live_holder_is_named_and_a_dead_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path) as process:
        name = f"process {process.pid} on {os.uname().nodename}"
        with pytest.raises(RunError, match=rf"^{name}$"), hold(path, RunError):
            pytest.fail("two holders")
        process.send_signal(signal.SIGKILL)
        process.wait()
        with hold(path, RunError) as dead_holder:
            assert dead_holder == name


def test_a_lock_that_was_let_go_has_no_dead_holder(tmp_path: Path) -> None:
    for _ in range(2):
        with hold(tmp_path / "lock", RunError) as dead_holder:
            assert dead_holder is None


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    with hold(tmp_path / "lock", RunError):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "lock.holder"]
    assert not list(tmp_path.iterdir())


def test_where_the_file_system_has_no_locks_none_is_pretended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:  # noqa: ARG001
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with (
        pytest.raises(StorageError, match="lock cannot be written: Function not implemented"),
        hold(tmp_path / "lock", RunError),
    ):
        pytest.fail("held")


def test_whoever_wants_the_host_to_itself_waits_and_is_told_once_for_whom(tmp_path: Path) -> None:
    told: list[str] = []
    with held_elsewhere(tmp_path / HOST_LOCK) as process:

        def end_it(holder: str) -> None:
            told.append(holder)
            threading.Timer(0.5, process.kill).start()

        with hold_host(end_it, folder=tmp_path, poll_s=0.05):
            with pytest.raises(RunError), hold(tmp_path / HOST_LOCK, RunError):
                pytest.fail("two holders")
            assert process.poll() is not None
    assert told == [f"process {process.pid} on {os.uname().nodename}"]
    with hold_host(told.append, folder=tmp_path):
        assert len(told) == 1, "nobody to wait for"


def test_it_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path / "lock", RunError):
        raise ZeroDivisionError
    with hold(tmp_path / "lock", RunError):
        pass


@pytest.mark.parametrize(("content", "wanted"), [(None, "just starting"), ("no json", "an unknown process")])
def test_a_holder_that_has_not_written_its_name(tmp_path: Path, content: str | None, wanted: str) -> None:
    path, beside = tmp_path / "lock", tmp_path / "lock.holder"
    with hold(path, RunError):
        beside.unlink()
        if content is not None:
            beside.write_text(content)
        with pytest.raises(RunError, match=wanted), hold(path, RunError):
            pytest.fail("two holders")


def test_a_decode_worker_that_outlives_a_killed_run_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path, FORKING_HOLDER) as process:
        worker = int(process.stdout.readline())  # type: ignore[union-attr]
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            with hold(path, RunError):
                os.kill(worker, 0)  # it is alive
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_fork_does_not_keep_the_lock_that_its_parent_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold(path, RunError):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
    try:
        with hold(path, RunError):
            assert child.is_alive()
    finally:
        child.kill()
        child.join()
