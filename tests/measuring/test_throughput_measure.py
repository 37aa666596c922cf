"""Measuring one loader: the clock, the consumer's speed, the process it runs in."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from throughput_jobs import NUM_IMAGES, job, write_images, write_list

from pcr_exp.errors import LoaderError
from pcr_exp.measuring.peers.registry import Job
from pcr_exp.measuring.throughput.measure import measure
from pcr_exp.measuring.throughput.process import LoaderProcess, answer


class Sleeper:
    """Three batches of four, each after 20 ms."""

    def __init__(
        self, shape: tuple[int, ...] = (4, 16, 16, 3), dtype: Any = np.uint8, count: int = 3
    ) -> None:
        self.batch = np.zeros(shape, dtype)
        self.count = count
        self.closed = False

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:  # noqa: ARG002
        try:
            for _ in range(self.count):
                time.sleep(0.02)
                yield self.batch
        finally:
            self.closed = True


def test_a_consumer_that_takes_batches_at_once_waits_all_the_time(tmp_path: Path) -> None:
    measured = measure(Sleeper(), tmp_path, job())
    assert measured.num_images == 12
    assert measured.total_s >= 0.06 > measured.first_batch_s >= 0.02
    assert measured.wait_s / measured.total_s > 0.95


def test_a_model_takes_its_time_and_waits_less(tmp_path: Path) -> None:
    measured = measure(Sleeper(), tmp_path, job(model_images_per_s=50.0))  # 80 ms a batch
    assert measured.total_s >= 0.06 + 3 * 0.08
    assert measured.wait_s / measured.total_s < 0.5


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 8, 8, 3), np.uint8), ((4, 16, 16, 3), np.float32), ((4, 16, 16, 1), np.uint8)]
)
def test_other_work_is_refused(shape: tuple[int, ...], dtype: Any, tmp_path: Path) -> None:
    peer = Sleeper(shape, dtype)
    with pytest.raises(LoaderError, match=r"image_folder_pil gave a batch of .* does not do the same work"):
        measure(peer, tmp_path, job())
    assert peer.closed


def test_no_batch_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="image_folder_pil gave no batch"):
        measure(Sleeper(count=0), tmp_path, job())


def test_cpu_seconds_of_workers_count(tmp_path: Path) -> None:
    class Burner:
        def batches(self, folder: Path, job: Job) -> Iterator[Any]:  # noqa: ARG002
            burn = "import time\nwhile time.process_time() < 0.15: pass"
            subprocess.run([sys.executable, "-S", "-c", burn], check=True)
            yield np.zeros((4, 16, 16, 3), np.uint8)

    assert measure(Burner(), tmp_path, job()).cpu_s >= 0.09


def test_a_job_survives_json() -> None:
    wanted = job(num_workers=2, model_images_per_s=3.0, num_epochs=4)
    assert Job.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted


def test_what_a_process_is_asked(tmp_path: Path) -> None:
    images = write_list(write_images(tmp_path / "images"), tmp_path / "images.json")
    folder = tmp_path / "tree"
    folder.mkdir()
    request = {"do": "build", "loader": "image_folder_pil", "folder": str(folder), "images": str(images)}
    assert answer(request)["build_s"] > 0
    measured = answer({"do": "measure", "folder": str(folder), "job": job().to_json()})
    assert measured["num_images"] == NUM_IMAGES


@pytest.mark.program
def test_a_loader_that_fails_is_named_and_its_process_lives_on(tmp_path: Path) -> None:
    with LoaderProcess("image_folder_pil") as process:
        for _ in range(2):
            with pytest.raises(LoaderError, match=r"image_folder_pil: .*nothing"):
                process.ask({"do": "measure", "folder": str(tmp_path / "nothing"), "job": job().to_json()})


def test_a_process_that_dies_is_named() -> None:
    with LoaderProcess("webdataset") as process:
        os.kill(process._process.pid, signal.SIGKILL)
        with pytest.raises(LoaderError, match=r"process of webdataset died with status -9.*none"):
            process.ask({"do": "measure"})


def test_a_dead_process_can_be_closed_with_a_request_under_way() -> None:
    process = LoaderProcess("webdataset")
    process._process.kill()
    process._process.wait()
    process._process.stdin.write(b"what was asked")  # buffered: closing sends it
    process.close()
    assert process._process.returncode == -signal.SIGKILL


def test_a_process_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcr_exp.measuring.throughput.process._END_S", 0.1)
    process = LoaderProcess("webdataset")
    os.kill(process._process.pid, signal.SIGSTOP)
    process.close()
    assert process._process.returncode == -signal.SIGKILL
