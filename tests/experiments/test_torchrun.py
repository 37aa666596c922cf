"""`torchrun ... -m experiments.train`, as a user types it."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pcr_exp.runs.rows import read_rows

REPO = Path(__file__).parents[2]


def command_of(processes: int, tmp_path: Path, *overrides: str) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)),
        *("--master-port", str(29500 + os.getpid() % 1000), "-m", "experiments.train", "training=debug"),
        *(
            "dataset.num_train=24",
            "dataset.tune_fraction=0",
            "dataset.num_val=8",
            "dataset.size_px=64",
            "dataset.images_per_record=8",
        ),
        *(
            f"dataset.root={tmp_path}/photos",
            f"records.root={tmp_path}/records",
            f"runs_root={tmp_path}/runs",
        ),
        *("loader.num_workers=0", f"hydra.run.dir={tmp_path}/hydra", *overrides),
    ]


def launched(processes: int, tmp_path: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = command_of(processes, tmp_path, *overrides)
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_two_processes_make_one_run(tmp_path: Path) -> None:
    done = launched(2, tmp_path, "gradients=threelc_server", "network=1gbit")
    assert done.returncode == 0, done.stderr
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert "threelc_server_x2-1gbit" in run.name
    rows = read_rows(run / "rows.jsonl")
    assert rows[-1]["samples_seen"] == 24
    assert rows[-1]["pulled_bytes"] > 0


@pytest.mark.slow
def test_an_error_ends_all_processes(tmp_path: Path) -> None:
    done = launched(2, tmp_path, "gradients=threelc", "model.name=resnet_18")
    assert done.returncode != 0
    assert "resnet_18" in done.stderr


@pytest.mark.slow
def test_a_job_that_fails_in_one_process_ends_the_sweep_of_both(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broken = f"records.root={tmp_path}/file/records"  # found by the first process, for which the other waits
    sweep = ("hydra.mode=MULTIRUN", f"hydra.sweep.dir={tmp_path}/hydra", "seed=0,1")
    done = launched(2, tmp_path, broken, "gradients=threelc", *sweep)
    assert done.returncode == 1
    assert f"{tmp_path}/file" in done.stderr
    (begun,) = (tmp_path / "runs").iterdir()
    assert "-s0-" in begun.name


@pytest.mark.slow
def test_processes_end_with_a_torchrun_that_was_killed(tmp_path: Path) -> None:
    command = command_of(2, tmp_path, "gradients=threelc", "training.epochs=1000", "loader.num_workers=1")
    output = tmp_path / "output"
    with output.open("w") as file:
        torchrun = subprocess.Popen(command, cwd=REPO, stderr=file, start_new_session=True)
    started: list[psutil.Process] = []
    try:
        deadline_s = time.monotonic() + 250
        while "epoch 1/1000" not in output.read_text() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        started = psutil.Process(torchrun.pid).children(recursive=True)
        assert len(started) == 4, "two processes, and a worker of each"
        torchrun.kill()
        torchrun.wait()
        _, alive = psutil.wait_procs(started, timeout=60)
        assert alive == []
    finally:
        for process in [*started, torchrun]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        torchrun.wait()
    assert "asked to stop: saving a checkpoint" in output.read_text()
