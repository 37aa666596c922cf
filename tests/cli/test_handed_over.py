"""Sweeps run through submitit and on a Ray cluster, and the states of their jobs are reported."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from two_raylets import TwoRaylets, two_raylets

REPO = Path(__file__).parents[2]
PROGRAM = """
import time
from pathlib import Path
from pcr_exp.config.commands import FiguresConfig
from pcr_exp.errors import RunError
from pcr_exp.cli.launch import launch

def task(config):
    with Path(config.runs_root, f"begun-{config.out}").open("a") as file:
        file.write("once\\n")
    if config.out == "bad":
        raise RunError("this one cannot be done")
    while config.out.startswith("waiting") and not Path(config.runs_root, "go").exists():
        time.sleep(0.1)
    return "finished"

if __name__ == "__main__":
    launch(task, "figures", FiguresConfig, print)
"""


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    return run(
        folder, str(folder / "program.py"), "-m", f"runs_root={folder}", "hydra.sweep.dir=grid", *arguments
    )


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "160", "NO_COLOR": "1"}
    command = [sys.executable, *arguments]
    # Output goes to files: jobs outlive the command and would keep pipes open.
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as errors:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=out, stderr=errors, timeout=500, check=False
        )
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, out.read(), errors.read())


def states(folder: Path) -> dict[str, str]:
    """Return the state of each job from `sweep table`."""
    done = run(folder, "-m", "experiments.sweep", "table", "grid")
    rows = csv.DictReader(done.stdout.splitlines())
    return {row["job"].split()[1].removeprefix("out="): row["state"] for row in rows}


@pytest.mark.program
def test_jobs_are_handed_over_and_the_command_returns(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    slurm = ("hydra/launcher=slurm", "hydra.launcher.cluster=local", "hydra.launcher.timeout_min=10")
    done = start(tmp_path, *slurm, "out=good,bad,waiting")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 jobs submitted; see python -m experiments.sweep status grid" in done.stderr
    deadline_s = time.monotonic() + 200
    while (found := states(tmp_path)) != {"good": "finished", "bad": "failed", "waiting": "running"}:
        assert time.monotonic() < deadline_s, found
        time.sleep(1)
    # If a job still runs when the sweep is extended, only failed and new jobs are submitted.
    done = start(tmp_path, *slurm, "out=waiting,bad,more")
    assert "2 of 4 jobs submitted" in done.stderr, done.stderr
    (tmp_path / "go").touch()
    waited = run(tmp_path, "-m", "experiments.sweep", "wait", "grid", "--every-s", "1")
    assert waited.returncode == 1, "a job failed"
    assert waited.stdout.splitlines()[-1] == "4 jobs: 3 finished, 1 failed"
    assert states(tmp_path) == {
        "good": "finished",
        "bad": "failed",
        "waiting": "finished",
        "more": "finished",
    }
    begun = {file.name: len(file.read_text().split()) for file in tmp_path.glob("begun-*")}
    assert begun == {"begun-good": 1, "begun-bad": 2, "begun-waiting": 1, "begun-more": 1}
    assert "this one cannot be done" in run(tmp_path, "-m", "experiments.sweep", "status", "grid").stdout


@pytest.fixture
def raylets(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoRaylets]:
    with two_raylets(monkeypatch) as started:
        yield started


def on_ray(raylets: TwoRaylets) -> list[str]:
    return [
        "hydra/launcher=ray",
        f"hydra.launcher.address={raylets.address}",
        "hydra.launcher.num_cpus=1",
    ]


@pytest.mark.slow
def test_jobs_run_on_both_nodes_of_a_ray_cluster(raylets: TwoRaylets, tmp_path: Path) -> None:
    done = start(tmp_path, *on_ray(raylets), "out=good,bad,more")
    assert done.returncode == 1, done.stderr
    assert "3 jobs, 1 failed" in done.stderr
    assert states(tmp_path) == {"good": "finished", "bad": "failed", "more": "finished"}
    logs = sorted(path.name for path in (tmp_path / "grid/logs").iterdir())
    assert logs == ["job-0000.txt", "job-0001.txt", "job-0002.txt"]
    assert "this one cannot be done" in (tmp_path / "grid/logs/job-0001.txt").read_text()


@pytest.mark.slow
def test_a_job_whose_node_is_killed_runs_again_on_the_other(raylets: TwoRaylets, tmp_path: Path) -> None:
    def kill_second() -> None:
        deadline_s = time.monotonic() + 300
        while len(list(tmp_path.glob("begun-*"))) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        raylets.kill_second()
        (tmp_path / "go").touch()

    watch = threading.Thread(target=kill_second)
    watch.start()
    done = start(tmp_path, *on_ray(raylets), "out=waiting,waiting_too")
    watch.join()
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == {"waiting": "finished", "waiting_too": "finished"}
    begun = sorted(len(file.read_text().split()) for file in tmp_path.glob("begun-*"))
    assert begun == [1, 2], "one on each node, and that of the dead one again"
