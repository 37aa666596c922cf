"""Throttle files of killed processes are removed, and no others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.storage import bucket
from pcr_exp.storage.bucket import new_bucket_path, remove_ownerless
from pcr_exp.storage.throttle import Throttle
from pcr_exp.system import own_folder

REPO = Path(__file__).parents[2]

HOLDER = """
import sys
from pathlib import Path
from pcr_exp.config.loader import StorageConfig
from pcr_exp.system import own_folder
from pcr_exp.storage.throttle import Throttle
own_folder.SHARED_MEMORY = Path(sys.argv[1])
throttle = Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=1))
print(throttle.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder, below a stand-in for /dev/shm."""
    monkeypatch.setattr(own_folder, "SHARED_MEMORY", tmp_path)
    return own_folder.shared_folder()


def files(folder: Path) -> set[Path]:
    return set(folder.iterdir())


def test_what_a_killed_process_left_is_removed_when_the_next_throttle_is_made(folder: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder.parent)],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None and holder.stdout is not None
    held = Path(holder.stdout.readline().strip())
    mine = Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=1))
    assert files(folder) == {held, mine.path}, "its owner is alive"
    holder.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # a zombie until it is waited for
    other = Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=1))
    assert files(folder) == {mine.path, other.path}
    holder.communicate()


def test_a_pid_that_is_used_again_is_another_process(folder: Path) -> None:
    namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    stale = folder / f"pcr-exp-throttle-{os.getpid()}-1-{namespace}-abc"
    stale.touch()
    mine = new_bucket_path()
    assert files(folder) == {mine}


def test_files_that_nobody_can_judge_stay(folder: Path) -> None:
    elsewhere = folder / "pcr-exp-throttle-999999999-5-1-abc"  # of another container
    unknown = folder / "pcr-exp-throttle-abc"
    for path in (elsewhere, unknown):
        path.touch()
    remove_ownerless(folder)
    assert files(folder) == {elsewhere, unknown}


def test_where_starting_times_are_not_told_a_living_pid_is_enough(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_started", lambda pid: None)  # noqa: ARG005
    monkeypatch.setattr(bucket, "_pid_namespace", lambda: 0)
    dead = folder / "pcr-exp-throttle-999999999-0-0-abc"
    dead.touch()
    mine = new_bucket_path()
    remove_ownerless(folder)
    assert files(folder) == {mine}


def test_without_shared_memory_the_temp_folder_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_folder, "SHARED_MEMORY", folder / "missing")
    monkeypatch.setattr(own_folder.tempfile, "gettempdir", lambda: str(folder))
    assert new_bucket_path().parent.parent == folder


def test_a_file_that_another_process_removes_first_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / f"pcr-exp-throttle-999999999-1-{bucket._pid_namespace()}-abc").touch()

    def gone(_: Path) -> None:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", gone)
        remove_ownerless(folder)


def test_a_file_that_nobody_opened_goes_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from pcr_exp.storage import bucket; from pcr_exp.system import own_folder\n"
        "own_folder.SHARED_MEMORY = Path(sys.argv[1])\n"
        "path = bucket.new_bucket_path()\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait(); assert path.exists(), 'a child removed it'"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPO)}, check=True)
    (folder,) = files(tmp_path)
    assert files(folder) == set()


@pytest.mark.parametrize("kind", ["link", "fifo", "other user"])
def test_what_is_put_in_a_throttle_s_place_is_not_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "bucket", tmp_path / "victim"
    victim.write_bytes(b"a file of mine")
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.touch()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StorageError, match="cannot open a throttle at"):
        Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=1), path)
    assert victim.read_bytes() == b"a file of mine"
