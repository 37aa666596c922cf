"""`torchrun ... -m experiments.train`, as a user types it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pcr_exp.runs.rows import Row, deterministic_part, read_rows

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
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=500, check=False)


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
    broken = f"records.root={tmp_path}/file/records"  # only the first process finds out; the other waits
    sweep = ("hydra.mode=MULTIRUN", f"hydra.sweep.dir={tmp_path}/hydra", "seed=0,1")
    done = launched(2, tmp_path, broken, "gradients=threelc", *sweep)
    assert done.returncode == 1
    assert f"{tmp_path}/file" in done.stderr
    jobs = {path.name for path in (tmp_path / "hydra").glob("job-*.json")}
    assert jobs == {"job-0000.json", "job-0000-rank1.json"}, "the second is not begun"


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


ELASTIC = (
    *("training.checkpoint_every_steps=1", "training.epochs=4", "training.log_every_steps=1"),
    *("training.batch_size=4", "training.global_batch_size=8"),
)
"""Run that two processes or one train alike, with checkpoints in the middle of every epoch."""


def start(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("w") as file:
        return subprocess.Popen(command, cwd=REPO, stdout=file, stderr=file, start_new_session=True)


def process_of(torchrun: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """Return the training processes by rank."""
    children = psutil.Process(torchrun.pid).children()
    return {child.environ()["RANK"]: child for child in children if "RANK" in child.environ()}


def wait_for(found: Callable[[], bool], output: Path, within_s: float = 240) -> None:
    deadline_s = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < deadline_s, output.read_text()[-3000:]
        time.sleep(0.1)


def rows_of(runs: Path) -> list[Row]:
    (run,) = (path for path in runs.iterdir() if path.is_dir())
    return read_rows(run / "rows.jsonl")


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_and_all_go_on_in_mid_epoch(tmp_path: Path) -> None:
    whole = launched(2, tmp_path, *ELASTIC, f"runs_root={tmp_path}/whole")
    assert whole.returncode == 0, whole.stderr[-3000:]
    output = tmp_path / "output"
    command = command_of(2, tmp_path, *ELASTIC)
    place = command.index("--nproc-per-node")
    torchrun = start([*command[:place], "--max-restarts", "1", *command[place:]], output)
    try:
        wait_for(lambda: "epoch 2/4" in output.read_text(), output)
        killed = process_of(torchrun)["1"]
        killed.kill()
        assert torchrun.wait(240) == 0, output.read_text()[-3000:]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(torchrun.pid, signal.SIGKILL)
    said = output.read_text()
    assert f"local_rank: 1 (pid: {killed.pid})" in said
    assert "continuing interrupted" in said or "continuing failed" in said
    assert deterministic_part(rows_of(tmp_path / "runs")) == deterministic_part(rows_of(tmp_path / "whole"))


@pytest.mark.slow
def test_one_node_goes_on_where_another_is_lost(tmp_path: Path) -> None:
    """When the second of two nodes is lost, the first finishes the training alone (one process each)."""
    port = 29500 + os.getpid() % 1000
    command = command_of(1, tmp_path, *ELASTIC)
    at = command.index("--nproc-per-node")
    del command[at + 2 : at + 4]  # --master-port is for a single node
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "lost"]
    nodes = ["--nnodes", "1:2", "--max-restarts", "3", *rendezvous]
    outputs = [tmp_path / f"output-{node}" for node in range(2)]
    agents = []
    try:
        for node, output in enumerate(outputs):
            host = ["--rdzv-conf", f"is_host={node == 0}"]  # else the first to arrive, perhaps node 1
            agents.append(start([*command[:at], *nodes, *host, *command[at:]], output))
        wait_for(lambda: any("epoch 2/4" in output.read_text() for output in outputs), outputs[0])
        os.killpg(agents[1].pid, signal.SIGKILL)
        assert agents[0].wait(400) == 0, outputs[0].read_text()[-3000:]
    finally:
        for agent in agents:
            with suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
    rows = rows_of(tmp_path / "runs")
    assert (rows[-1]["epoch"], rows[-1]["samples_seen"]) == (4, 4 * 24)
