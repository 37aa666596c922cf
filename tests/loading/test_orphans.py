"""No process outlives the one that started it, whatever it is doing."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from throughput_jobs import NUM_IMAGES, job, write_images, write_list

from experiments.loaders.process import LoaderProcess
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.system import process as ending
from pcr_exp.system.process import end_with_parent, terminate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")

OpenLoader = Callable[..., RecordLoader]


def members(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == session:
                found.append(process.pid)
    return found


def wait_for(condition: Callable[[], bool], within_s: float) -> bool:
    deadline_s = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return condition()


@pytest.fixture
def forked() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Function that forks a process in its own session, which runs a callable and then waits."""
    sessions = []

    def fork(do: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                do()
                time.sleep(600)
            finally:
                os._exit(1)
        sessions.append(pid)
        return pid

    yield fork
    for session in sessions:
        for pid in members(session):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(session, 0)


Fork = Callable[[Callable[[], object]], int]


class Hanging(TrainTransform):
    """Hangs, like a worker that received half a task and waits forever for the rest."""

    def __call__(self, *_: object) -> None:
        time.sleep(600)


def test_decoding_processes_end_with_a_killed_training_whatever_they_wait_for(
    open_loader: OpenLoader, forked: Fork
) -> None:
    loader = open_loader(2, transform=Hanging(32, AugmentConfig()))
    training = forked(lambda: next(loader.batches(0, 0, 1)))
    assert wait_for(lambda: len(members(training)) == 3, 10)
    time.sleep(0.3)  # in the middle of a task
    os.kill(training, signal.SIGKILL)
    os.waitpid(training, 0)
    assert wait_for(lambda: members(training) == [], 5), "torch looks after its workers between tasks only"


@pytest.mark.program
def test_a_loader_that_is_measured_ends_with_the_program_and_its_workers_with_it(
    tmp_path: Path, forked: Fork
) -> None:
    images = write_list(write_images(tmp_path / "images"), tmp_path / "images.json")
    (tmp_path / "tree").mkdir()
    build = {"do": "build", "loader": "image_folder_pil", "images": str(images)}
    slow = job(num_workers=2, model_images_per_s=1.0, num_epochs=1000)

    def program() -> None:
        process = LoaderProcess("image_folder_pil")
        for request in (build, {"do": "measure", "job": slow.to_json(), "epoch_images": NUM_IMAGES}):
            process.ask({**request, "folder": str(tmp_path / "tree")})

    session = forked(program)
    assert wait_for(lambda: len(members(session)) == 4, 180)
    os.kill(session, signal.SIGKILL)
    os.waitpid(session, 0)
    assert wait_for(lambda: members(session) == [], 10)


def start_child(end: Callable[[], None] | None = None) -> None:
    parent = os.getpid()
    if os.fork() == 0:
        end_with_parent(parent, end)
        time.sleep(600)


def test_a_thread_that_forked_may_end(forked: Fork) -> None:
    def fork_in_a_thread() -> None:
        thread = threading.Thread(target=start_child)
        thread.start()
        thread.join()

    parent = forked(fork_in_a_thread)
    assert wait_for(lambda: len(members(parent)) == 2, 5)
    time.sleep(3 * ending.POLL_S)
    assert len(members(parent)) == 2
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert wait_for(lambda: members(parent) == [], 5)


def test_a_process_that_is_an_orphan_already_ends_at_once(forked: Fork) -> None:
    child = forked(lambda: end_with_parent(-1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_run_is_asked_to_end_and_then_made_to(forked: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "TIMEOUT_S", 0.3)
    asked = forked(terminate)
    assert os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]) == -signal.SIGTERM

    def deaf() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        terminate()

    assert os.waitstatus_to_exitcode(os.waitpid(forked(deaf), 0)[1]) == 128 + signal.SIGTERM
