"""Measurement of one loader: the clock, the consumer's speed, and the process that it runs in."""

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

from experiments.loaders.process import LoaderProcess, answer
from pcr_exp.errors import LoaderError
from pcr_exp.measuring.throughput.job import Job
from pcr_exp.measuring.throughput.measure import measure

EPOCH = 12
"""Images per epoch: three batches of four."""


class Sleeper:
    """Epochs of three batches of four, one every 20 ms; the first takes `start_s` more."""

    def __init__(
        self,
        shape: tuple[int, ...] = (4, 16, 16, 3),
        dtype: Any = np.uint8,
        *,
        start_s: float = 0.0,
        missing: int = 0,
    ) -> None:
        self.batch = np.zeros(shape, dtype)
        self.start_s, self.missing = start_s, missing
        self.closed = False

    def batches(self, folder: Path, job: Job) -> Iterator[Any]:  # noqa: ARG002
        try:
            time.sleep(self.start_s)
            for _ in range(3 * job.num_epochs - self.missing):
                time.sleep(0.02)
                yield self.batch
        finally:
            self.closed = True


def test_a_consumer_that_takes_batches_at_once_waits_all_the_time(tmp_path: Path) -> None:
    peer = Sleeper()
    measured = measure(peer, tmp_path, job(num_epochs=2), EPOCH)
    assert measured.num_images == 2 * EPOCH
    assert measured.total_s >= 6 * 0.02 and measured.first_batch_s >= 0.02
    assert measured.wait_s / measured.total_s > 0.9
    assert peer.closed, "what comes after the counted epochs is not waited for"


def test_a_loader_s_start_is_told_and_not_counted(tmp_path: Path) -> None:
    measured = measure(Sleeper(start_s=0.5), tmp_path, job(), EPOCH)
    assert measured.first_batch_s >= 0.5 > measured.total_s >= 3 * 0.02


def test_batches_that_were_ready_are_not_counted(tmp_path: Path) -> None:
    class Prefetcher(Sleeper):
        def batches(self, folder: Path, job: Job) -> Iterator[Any]:  # noqa: ARG002
            for number in range(3 * job.num_epochs):
                time.sleep(0.02 if number >= 2 else 0)
                yield self.batch

    assert measure(Prefetcher(), tmp_path, job(), EPOCH).total_s >= 3 * 0.02


def test_a_model_takes_its_time_and_waits_less(tmp_path: Path) -> None:
    measured = measure(Sleeper(), tmp_path, job(model_images_per_s=50.0), EPOCH)  # 80 ms a batch
    assert measured.total_s >= 3 * 0.08
    assert measured.wait_s / measured.total_s < 0.5


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 8, 8, 3), np.uint8), ((4, 16, 16, 3), np.float32), ((4, 16, 16, 1), np.uint8)]
)
def test_other_work_is_refused(shape: tuple[int, ...], dtype: Any, tmp_path: Path) -> None:
    peer = Sleeper(shape, dtype)
    with pytest.raises(
        LoaderError, match=r"image_folder_pil gave a batch of .* so that all loaders do the same work"
    ):
        measure(peer, tmp_path, job(), EPOCH)
    assert peer.closed


@pytest.mark.parametrize("missing", [9, 4])
def test_fewer_images_than_epochs_hold_are_an_error(missing: int, tmp_path: Path) -> None:
    with pytest.raises(
        LoaderError, match=rf"image_folder_pil gave {36 - 4 * missing} images .* wanted more than 24"
    ):
        measure(Sleeper(missing=missing), tmp_path, job(), EPOCH)


def test_cpu_seconds_of_workers_count_while_they_run(tmp_path: Path) -> None:
    class Burner(Sleeper):
        def batches(self, folder: Path, job: Job) -> Iterator[Any]:
            worker = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            try:
                yield from super().batches(folder, job)
            finally:
                worker.kill()
                worker.wait()

    burned = measure(Burner(), tmp_path, job(num_epochs=10), EPOCH)
    assert burned.cpu_s >= measure(Sleeper(), tmp_path, job(num_epochs=10), EPOCH).cpu_s + 0.05


def test_a_job_survives_json() -> None:
    wanted = job(num_workers=2, model_images_per_s=3.0, num_epochs=4)
    assert Job.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted


def test_what_a_process_is_asked(tmp_path: Path) -> None:
    images = write_list(write_images(tmp_path / "images"), tmp_path / "images.json")
    folder = tmp_path / "tree"
    folder.mkdir()
    request = {"do": "build", "loader": "image_folder_pil", "folder": str(folder), "images": str(images)}
    assert answer(request)["build_s"] > 0
    asked = {"do": "measure", "folder": str(folder), "job": job().to_json(), "epoch_images": NUM_IMAGES}
    measured = answer(asked)
    # From the first batch after one epoch to the first batch after two; batches have four images.
    assert measured["num_images"] == 8


def test_a_peer_that_is_missing_says_so_where_it_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.loaders.peers.catalogue.absence", lambda _: "not installed: do this")
    with pytest.raises(LoaderError, match="not installed: do this"):
        answer(
            {
                "do": "build",
                "loader": "ffcv",
                "folder": str(tmp_path),
                "images": str(write_list([], tmp_path / "i")),
            }
        )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity here")
def test_a_loader_can_be_confined_to_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    confined: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: confined.append(cores))
    monkeypatch.setattr("experiments.loaders.peers.catalogue.open_peer", lambda _: Sleeper())
    for cores in (None, 1):
        request = {"do": "measure", "folder": str(tmp_path), "epoch_images": EPOCH}
        answer(request | {"job": job(cores=cores).to_json()})
    assert confined == [sorted(os.sched_getaffinity(0))[:1]]


@pytest.mark.program
def test_a_loader_that_fails_is_named_and_its_process_lives_on(tmp_path: Path) -> None:
    with LoaderProcess("image_folder_pil") as process:
        for _ in range(2):
            with pytest.raises(LoaderError, match=r"image_folder_pil: .*nothing"):
                process.ask(
                    {
                        "do": "measure",
                        "folder": str(tmp_path / "nothing"),
                        "job": job().to_json(),
                        "epoch_images": EPOCH,
                    }
                )


def test_a_process_that_dies_is_named() -> None:
    with LoaderProcess("webdataset") as process:
        os.kill(process._process.pid, signal.SIGKILL)
        with pytest.raises(LoaderError, match=r"process of webdataset died with status -9.*none"):
            process.ask({"do": "measure"})


def test_a_dead_process_can_be_closed_with_a_request_under_way() -> None:
    process = LoaderProcess("webdataset")
    process._process.kill()
    process._process.wait()
    process._process.stdin.write(b"what was asked")  # buffered, so closing sends it
    process.close()
    assert process._process.returncode == -signal.SIGKILL


def test_a_process_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.loaders.process._END_S", 0.1)
    process = LoaderProcess("webdataset")
    os.kill(process._process.pid, signal.SIGSTOP)
    process.close()
    assert process._process.returncode == -signal.SIGKILL
