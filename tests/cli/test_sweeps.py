"""Sweeps under Hydra's launchers, in real processes: final messages and exit statuses."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_processes import processes_of, wait_until_ended

from pcr_exp.cli.jobs import DIED, read_ended
from pcr_exp.cli.sweep_state import read_jobs

pytestmark = pytest.mark.program

REPO = Path(__file__).parents[2]

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from pcr_exp.cli.launch import launch
from pcr_exp.config.commands import FiguresConfig
from pcr_exp.errors import RunError

def task(config):
    if config.out == "bad":
        raise RunError("this one cannot be done")
    if config.out == "bug":
        return 1 / 0
    if config.out == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.out == "interrupted":
        raise KeyboardInterrupt
    if config.out == "masked":
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            None.attribute  # as a library does that is not made to be interrupted
    if config.out == "waiting":
        Path(config.runs_root, "waits").touch()
        try:
            time.sleep(60)
        finally:
            Path(config.runs_root, "unwound").touch()
    return "finished"

if __name__ == "__main__":
    launch(task, "figures", FiguresConfig, print)
"""


def command(folder: Path, *arguments: str) -> list[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return [sys.executable, str(program), *arguments, f"runs_root={folder}"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "120", "NO_COLOR": "1"}


def sweep(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, "-m", *arguments),
        cwd=folder,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a program in a session of its own, and return when one of its jobs waits."""
    process = subprocess.Popen(
        command(folder, *arguments),
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # If SIGINT is ignored here (`nohup make test &`), the program would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline_s = time.monotonic() + 60
    while not (folder / "waits").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Kill whatever is left of a session."""
    for pid in processes_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def table_of(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return how each job of the printed table ended."""
    _, table = re.split(r"\d jobs?, ", done.stderr, maxsplit=1)
    lines = table.splitlines()
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines if "out=" in line]
    return {cell[0].removeprefix("out="): cell[1] for cell in cells if cell}


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_under_any_launcher_a_failed_job_is_listed_and_the_exit_status_is_1(
    launcher: str, tmp_path: Path
) -> None:
    done = sweep(tmp_path, f"hydra/launcher={launcher}", "out=bad,bug,good")
    assert done.returncode == 1
    assert "3 jobs, 2 failed" in done.stderr
    assert {job.split()[0]: end for job, end in table_of(done).items()} == {
        "good": "finished",
        "bad": "failed",
        "bug": "failed",
    }
    assert "error: this one cannot be done" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr, "of a bug, the table and the traceback"


def test_a_sweep_in_which_all_is_well_says_so(tmp_path: Path) -> None:
    done = sweep(tmp_path, "out=one,two")
    assert done.returncode == 0, done.stderr
    assert "2 jobs, 0 failed" in done.stderr


def test_a_sweep_that_shall_fail_fast_begins_no_job_after_the_failed_one(tmp_path: Path) -> None:
    done = sweep(tmp_path, "runner=fail_fast", "out=first,bad,good,better")
    assert done.returncode == 1
    ends = {job.split()[0]: end for job, end in table_of(done).items()}
    assert ends == {"first": "finished", "bad": "failed", "good": "not begun", "better": "not begun"}
    assert "another job had failed" in done.stderr


def test_a_sweep_that_cannot_be_composed_leaves_no_job_waiting(tmp_path: Path) -> None:
    done = sweep(tmp_path, "tracking=none,group_11")
    assert done.returncode == 1 and "Could not find 'tracking/group_11'" in done.stderr
    (folder,) = tmp_path.glob("outputs/runs/.sweeps/*")
    jobs = read_jobs(folder)
    assert [job.state for job in jobs] == ["not begun", "not begun"]
    assert {job.detail for job in jobs} == {"the command that began the sweep has ended"}


@pytest.mark.slow
def test_a_job_whose_process_died_is_listed_as_dead(tmp_path: Path) -> None:
    done = sweep(tmp_path, "hydra/launcher=joblib", "hydra.launcher.n_jobs=1", "out=killed,good")
    assert done.returncode == -signal.SIGKILL, (
        "with one process, joblib runs jobs in the one that was started"
    )
    (outcome,) = read_ended(next(tmp_path.glob("outputs/runs/.sweeps/*")), interrupted=False)
    assert (outcome.status, outcome.detail) == (DIED, "its process ended without reporting an outcome")
    done = sweep(tmp_path, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "out=killed,good")
    assert done.returncode == 1
    ends = {job.split()[0]: end for job, end in table_of(done).items()}
    assert ends["killed"] == "died"


def test_an_interrupted_sweep_tells_what_was_done(tmp_path: Path) -> None:
    done = sweep(tmp_path, "out=one,bad,interrupted,two")
    assert done.returncode == 130
    assert "interrupted; run the same command again to continue" in done.stderr
    ends = {job.split()[0]: end for job, end in table_of(done).items()}
    assert ends == {"one": "finished", "bad": "failed", "interrupted": "interrupted"}
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_jobs_in_other_processes_end_with_the_sweep_however_that_ended(tmp_path: Path) -> None:
    process = begin(tmp_path, "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "out=good,waiting")
    try:
        assert len(processes_of(process.pid)) > 1
        process.kill()
        process.wait()
        assert wait_until_ended(process.pid, within_s=20) == {}
    finally:
        end(process)


@pytest.mark.parametrize(
    ("launcher", "number", "status"),
    [
        ("basic", signal.SIGINT, 130),
        ("basic", signal.SIGTERM, 143),
        pytest.param("joblib", signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param("joblib", signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_signal_unwinds_a_sweep_under_way(launcher: str, number: int, status: int, tmp_path: Path) -> None:
    process = begin(tmp_path, "-m", f"hydra/launcher={launcher}", "out=good,waiting")
    try:
        os.killpg(process.pid, number)  # as a terminal does
        _, errors = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == status, errors
    _, table = re.split(r"\d jobs?, 0 failed", errors, maxsplit=1)  # of the jobs that had begun
    assert "interrupted" in table
    assert processes_of(process.pid) == {}
    if launcher == "basic":
        assert "2 jobs" in errors
        assert (tmp_path / "unwound").exists()


def test_an_interrupt_that_a_library_turned_into_another_error_is_one(tmp_path: Path) -> None:
    done = sweep(tmp_path, "out=masked,good")
    assert done.returncode == 130
    assert "interrupted; run the same command again to continue" in done.stderr


def test_an_interrupt_when_all_is_done_does_not_cut_short_what_is_put_away(tmp_path: Path) -> None:
    at_exit = (
        "import atexit, signal\n"
        "atexit.register(lambda: print('put away'))\n"
        "atexit.register(lambda: signal.raise_signal(signal.SIGINT))\n"
    )
    program = command(tmp_path, "out=good")
    (tmp_path / "program.py").write_text(at_exit + PROGRAM)
    done = subprocess.run(
        program, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (0, "put away\n", False)
