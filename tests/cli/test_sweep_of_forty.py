"""A local sweep of forty trainings can be stopped, resumed and extended, and reports its state."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_processes import processes_of

REPO = Path(__file__).parents[2]
DATA = ("dataset.num_train=16", "dataset.num_val=8", "dataset.size_px=64", "dataset.images_per_record=8")
NUM_BEFORE, NUM_JOBS = 30, 40


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(REPO), str(REPO / "tests/cli/users_code")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}


def begin(folder: Path, num_jobs: int) -> subprocess.Popen[bytes]:
    """Start a sweep as users do; each job is a training of two updates."""
    line = [sys.executable, "-m", "experiments.train", "-m", f"seed=range({num_jobs})", *DATA]
    line += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=forty", "runs_root=runs"]
    line += ["components=[garden]", "model=patches", "training=debug", "training.device=cpu", "scan=group_2"]
    line += ["loader.num_workers=0", "dataset.root=images", "records.root=records"]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            line, cwd=folder, env=environment(), stdout=log, stderr=log, start_new_session=True
        )


def told(folder: Path, what: str) -> str:
    line = [sys.executable, "-m", "experiments.sweep", what, "forty"]
    return subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True).stdout


def num_ended(folder: Path) -> int:
    return len(list((folder / "runs").glob("*/manifest.json")))


@pytest.mark.slow
def test_forty_jobs_are_stopped_resumed_and_extended(tmp_path: Path) -> None:
    first = begin(tmp_path, NUM_BEFORE)
    try:
        deadline_s = time.monotonic() + 1200
        while num_ended(tmp_path) < 6 and first.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.5)
        in_the_middle = told(tmp_path, "status").splitlines()[-1]
        first.send_signal(signal.SIGINT)
        assert first.wait(300) == 130
    finally:
        for pid in processes_of(first.pid):
            os.kill(pid, signal.SIGKILL)
    assert re.search(r"^\d+ jobs: .*finished.* running|^\d+ jobs: .*running.*finished", in_the_middle)
    assert "left" in in_the_middle
    stopped = told(tmp_path, "status").splitlines()[-1]
    num_done = int(re.findall(r"(\d+) finished", stopped)[0])
    assert 1 <= num_done < NUM_BEFORE and "running" not in stopped
    finished_before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/rows.jsonl")}

    extended = begin(tmp_path, NUM_JOBS)
    assert extended.wait(2400) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    rows = list(csv.DictReader(told(tmp_path, "table").splitlines()))
    assert len(rows) == NUM_JOBS and {row["state"] for row in rows} <= {"finished", "skipped"}
    assert len({row["run"] for row in rows}) == NUM_JOBS
    assert all(0 <= float(row["val_top1"]) <= 1 for row in rows)
    unchanged = [path for path, then in finished_before.items() if path.stat().st_mtime_ns == then]
    assert len(unchanged) >= num_done, "what was finished is not run again"
    assert told(tmp_path, "status").splitlines()[-1].startswith(f"{NUM_JOBS} jobs: ")
