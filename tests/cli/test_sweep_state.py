"""`python -m experiments.sweep`: job states from files, the time left, one table, and stopping jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pcr_exp.cli import launchers
from pcr_exp.cli.answers import Answer
from pcr_exp.cli.jobs import (
    BEGUN,
    FAILED,
    Outcome,
    PlannedJob,
    SweepFolder,
    job_lock,
    note_run,
    print_outcomes,
    read_numbered,
    read_plan,
    running_job,
    sweep_lock,
    write_outcome,
    write_plan,
)
from pcr_exp.cli.launchers import JobCommand, jobs_to_start
from pcr_exp.cli.sweep import main
from pcr_exp.cli.sweep_state import JobState, read_jobs, seconds_left
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.system.lock import HOLDER_SUFFIX, is_held
from pcr_exp.system.ray_cluster import connect_to_ray

Output = pytest.CaptureFixture[str]
HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def hold_job(tmp_path: Path) -> Iterator[Callable[[int | None], subprocess.Popen[str]]]:
    """Let another process hold the lock of a job or, for None, of the command that begins the jobs."""
    processes = []

    def hold(number: int | None) -> subprocess.Popen[str]:
        lock = sweep_lock(tmp_path) if number is None else job_lock(tmp_path, number)
        command = [sys.executable, "-c", HOLDER, str(lock)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        processes.append(process)
        return process

    yield hold
    for process in processes:
        process.kill()
        process.communicate()


def plan_of(num: int, job_id: str | None = None) -> list[PlannedJob]:
    return [PlannedJob(number, [f"seed={number}"], job_id, job_id and "local") for number in range(num)]


def test_each_job_waits_runs_or_ended(
    tmp_path: Path, hold_job: Callable[[int | None], subprocess.Popen[str]]
) -> None:
    write_plan(tmp_path, plan_of(5))
    write_outcome(tmp_path, 0, Outcome("seed=0", "finished", run="/runs/a", began_s=100.0, ended_s=160.0))
    write_outcome(tmp_path, 1, Outcome("seed=1", FAILED, "no such model"))
    write_outcome(tmp_path, 2, Outcome("seed=2", BEGUN, began_s=100.0))
    write_outcome(tmp_path, 3, Outcome("seed=3", BEGUN, began_s=100.0))
    hold_job(2)
    command = hold_job(None)
    job_lock(tmp_path, 3).touch()  # as a killed process leaves it
    jobs = read_jobs(tmp_path)
    assert [job.state for job in jobs] == ["finished", "failed", "running", "died", "waiting"]
    assert (jobs[0].run, jobs[0].lasted_s) == (Path("/runs/a"), 60.0)
    assert jobs[3].detail == "its process ended without reporting an outcome" and jobs[4].job == "seed=4"
    command.kill()
    command.wait()
    (last,) = read_jobs(tmp_path)[4:]
    assert (last.state, last.detail) == ("not begun", "the command that began the sweep has ended")


def test_the_time_left_follows_from_jobs_that_finished_and_epochs_that_passed() -> None:
    finished = JobState(0, "", "finished", lasted_s=60.0)
    waiting = JobState(1, "", "waiting")
    running = JobState(2, "", "running", lasted_s=20.0)
    assert seconds_left([finished]) == 0
    assert seconds_left([waiting]) is None and seconds_left([running]) is None
    assert seconds_left([finished, running]) == 40
    assert seconds_left([finished, waiting, waiting, running]) == 40 + 2 * 60
    assert seconds_left([finished, waiting, waiting, running, running]) == (80 + 120) / 2
    assert seconds_left([replace(running, progress=0.25)]) == 60
    assert seconds_left([JobState(3, "", "skipped", lasted_s=0.1), waiting]) is None, "it took no time at all"


def test_a_job_shows_that_it_lives_and_which_run_is_its_own(tmp_path: Path) -> None:
    with running_job(tmp_path, 3, "seed=3") as job:
        assert is_held(job_lock(tmp_path, 3))
        note_run(tmp_path / "run")
        (told,) = read_numbered(tmp_path).values()
        assert (told.status, told.run, told.began_s is not None) == (BEGUN, str(tmp_path / "run"), True)
        with (
            pytest.raises(RunError, match=r"seed=3: this job of .* is already run by process \d+ on"),
            running_job(tmp_path, 3, "seed=3"),
        ):
            pass
        job.end(Outcome("seed=3", "finished"))
    note_run(tmp_path / "other")  # outside a sweep
    (told,) = read_numbered(tmp_path).values()
    assert (told.status, told.run) == ("finished", str(tmp_path / "run"))
    assert told.began_s is not None and told.ended_s is not None and told.ended_s >= told.began_s
    assert not is_held(job_lock(tmp_path, 3))


def test_a_sweep_that_is_extended_keeps_numbers_and_leaves_jobs_under_way_alone(
    tmp_path: Path, hold_job: Callable[[int], object]
) -> None:
    write_plan(tmp_path, plan_of(4, job_id="17"))
    write_outcome(tmp_path, 0, Outcome("seed=0", "finished"))
    write_outcome(tmp_path, 1, Outcome("seed=1", BEGUN))
    write_outcome(tmp_path, 2, Outcome("seed=2", FAILED))
    hold_job(1)
    jobs, starting = jobs_to_start(tmp_path, [["seed=7"], *([f"seed={i}"] for i in (3, 2, 1, 0))])
    assert {tuple(job.overrides): job.number for job in jobs} == {
        **{(f"seed={i}",): i for i in range(4)},
        ("seed=7",): 4,
    }
    assert sorted(job.number for job in starting) == [0, 2, 4]
    assert [job.number for job in jobs_to_start(tmp_path, [])[0]] == [0, 1, 2, 3], "none is forgotten"


def test_the_plan_of_a_sweep_is_that_of_hydras_sweeper(tmp_path: Path) -> None:
    hydra = {
        "runtime": {"cwd": "/"},
        "sweep": {"dir": str(tmp_path)},
        "sweeper": {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "params": None},
        "overrides": {"task": ["model=a,b", "seed=range(2)"]},
    }
    hydra["sweeper"]["params"] = {"scan": "group_1,group_2"}
    SweepFolder().on_multirun_start(OmegaConf.create({"hydra": hydra}))
    plan = read_plan(tmp_path)
    assert [job.number for job in plan] == list(range(8))
    assert plan[0].overrides == ["scan=group_1", "model=a", "seed=0"]
    SweepFolder.begun = None


def test_what_slurm_gave_up_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit")
    states = {"1_0": "CANCELLED by 1000", "1_1": "PENDING"}

    class Job:
        def __init__(self, _: Path, job_id: str) -> None:
            if job_id not in states:
                raise FileNotFoundError("sacct")
            self.state = states[job_id]

    monkeypatch.setattr(submitit, "SlurmJob", Job)
    write_plan(tmp_path, [PlannedJob(i, [f"seed={i}"], f"1_{i}", "slurm") for i in range(3)])
    jobs = read_jobs(tmp_path)
    assert [job.state for job in jobs] == ["died", "waiting", "waiting"]
    assert jobs[0].detail == "SLURM says CANCELLED by 1000 of its job 1_0"


def run_of(folder: Path, epochs: int) -> Path:
    """Write the files of a run that a table reads, and return the run's folder."""
    folder.mkdir()
    (folder / "config.yaml").write_text(f"training: {{epochs: {epochs}}}\n")
    rows = [
        {"kind": "eval", "eval_group": group, "epoch": 1, "val_top1": top1, "val_loss": 1.5}
        | {"train_s": 3.0, "wait_s": 1.0, "bytes_read": 2**21, "num_val": 8}
        for group, top1 in (("full", 0.5), ("same", 0.25))
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_one_table_comes_out(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcr_exp.runs.rows.read_rows", lambda path, *_: [json.loads(x) for x in path.open()])
    folder = tmp_path / "sweeps/grid"
    run = run_of(tmp_path / "run", epochs=4)
    write_plan(folder, plan_of(2))
    write_outcome(folder, 0, Outcome("seed=0", "finished", run=str(run), began_s=0.0, ended_s=1.0))
    with pytest.raises(SystemExit, match="1"):
        main(["table", "grid", "--root", str(tmp_path / "sweeps")])
    assert (
        (folder / "table.csv").read_text()
        == capsys.readouterr().out
        == (
            "number,job,state,run,epoch,train_s,wait_s,read_mib,val_loss,val_top1,detail\n"
            "0,seed=0,finished,run,1,3.0,1.0,2.0,1.5,0.5,\n"
            "1,seed=1,not begun,,,,,,,,the command that began the sweep has ended\n"
        )
    )


def test_a_running_job_is_as_far_as_its_run(
    tmp_path: Path, hold_job: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcr_exp.runs.rows.read_rows", lambda path, *_: [json.loads(x) for x in path.open()])
    run = run_of(tmp_path / "run", epochs=4)
    write_outcome(tmp_path, 0, Outcome("a", BEGUN, run=str(run), began_s=1.0))
    write_outcome(tmp_path, 1, Outcome("b", BEGUN, run=str(tmp_path / "new"), began_s=1.0))
    hold_job(0)
    hold_job(1)
    assert [job.progress for job in read_jobs(tmp_path)] == [0.25, None]


def test_status_says_what_is_done_and_fails_if_a_job_did(tmp_path: Path, capsys: Output) -> None:
    write_plan(tmp_path / "a", plan_of(3))
    write_outcome(tmp_path / "a", 0, Outcome("seed=0", FAILED, "no such [model]"))
    root = ["--root", str(tmp_path)]
    main(["status", "--root", str(tmp_path / "none")])
    assert capsys.readouterr().out == f"there are no sweeps in {tmp_path}/none\n"
    main(["status", *root])
    assert capsys.readouterr().out == "a: 3 jobs: 2 not begun, 1 failed\n"
    for name in ("a", "last", str(tmp_path / "a")):
        with pytest.raises(SystemExit, match="1"):
            main(["status", name, *root])
        assert "no such [model]" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        main(["status", "b", *root])
    assert (
        "there is no sweep 'b' in" in (said := capsys.readouterr().err) and "the newest there are: a" in said
    )


def test_the_end_of_a_sweep_tells_what_came_out_and_where_its_figures_lie(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    figure = "results/runs/" + "a_long_name_of_a_run_" * 6 + "/training_curve.png"
    outcomes = [Outcome("seed=0", FAILED, "no :bomb: such [model]"), Outcome("seed=1", "finished", run="a")]
    print_outcomes(outcomes, [None, Answer("top-1", "71.3%", figure, "of 8 images")])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].strip() == "2 jobs, 1 failed"
    (done,) = [line for line in lines if "seed=1" in line]
    assert "71.3%" in done and figure in done, "one line, however long it is: a pipe is as wide as its table"
    (failed,) = [line for line in lines if "seed=0" in line]
    assert "no :bomb: such [model]" in failed, "as it was written: no sign of a bomb"
    print_outcomes(outcomes[:1])
    said = capsys.readouterr().err
    assert "1 job, 1 failed" in said and "figure" not in said


def test_waiting_ends_when_no_job_is_open(tmp_path: Path, capsys: Output) -> None:
    for number, state in enumerate(("finished", "skipped")):
        write_outcome(tmp_path / "a", number, Outcome(f"seed={number}", state))
    with pytest.raises(SystemExit, match="0"):
        main(["wait", "a", "--root", str(tmp_path)])
    assert capsys.readouterr().out == "2 jobs: 1 finished, 1 skipped\n"


def test_a_job_of_this_machine_is_asked_to_end(
    tmp_path: Path, hold_job: Callable[[int], subprocess.Popen[str]], capsys: Output
) -> None:
    folder = tmp_path
    for number in (0, 1, 2):
        write_outcome(folder, number, Outcome(f"seed={number}", BEGUN))
    processes = [hold_job(number) for number in (0, 1, 2)]
    for number, host in enumerate([os.uname().nodename, "elsewhere"]):
        lock = job_lock(folder, number)
        holder = {"pid": processes[number].pid, "host": host}
        lock.with_name(lock.name + HOLDER_SUFFIX).write_text(json.dumps(holder))
    with pytest.raises(SystemExit, match="1"):
        main(["stop", str(folder)])
    said = capsys.readouterr()
    assert "1 of 3 jobs asked to end" in said.out and "jobs [1, 2] cannot be ended from here" in said.err
    assert processes[0].wait(10) == -signal.SIGTERM
    assert processes[1].poll() is None


def test_with_the_command_of_a_sweep_end_its_waiting_jobs(
    tmp_path: Path, hold_job: Callable[[int | None], subprocess.Popen[str]], capsys: Output
) -> None:
    write_plan(tmp_path, [PlannedJob(number, [f"seed={number}"]) for number in range(3)])
    write_outcome(tmp_path, 0, Outcome("seed=0", BEGUN))
    command = hold_job(None)
    running = hold_job(0)
    for lock in (sweep_lock(tmp_path), job_lock(tmp_path, 0)):  # here, both are of one process
        holder = {"pid": command.pid, "host": os.uname().nodename}
        lock.with_name(lock.name + HOLDER_SUFFIX).write_text(json.dumps(holder))
    with pytest.raises(SystemExit, match="0"):
        main(["stop", str(tmp_path)])
    said = capsys.readouterr()
    assert "3 of 3 jobs asked to end" in said.out and said.err == ""
    assert command.wait(10) == -signal.SIGTERM and running.poll() is None


def test_the_last_sweep_is_the_one_that_began_last(tmp_path: Path, capsys: Output) -> None:
    for number, name in enumerate(("new", "old")):
        write_plan(tmp_path / name, [PlannedJob(0, [f"seed={name}"])])
        os.utime(tmp_path / name / "sweep.json", (1e9 - number, 1e9 - number))
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SystemExit):
        main(["table", "old", "--root", str(tmp_path)])
    with pytest.raises(SystemExit):
        main(["status", "last", "--root", str(tmp_path)])
    assert "seed=new" in capsys.readouterr().out.split("table.csv")[-1]
    main(["status", "--root", str(tmp_path)])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["old", "new"]


def test_a_folder_of_something_else_and_a_damaged_plan_are_named(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(SystemExit, match="1"):
        main(["wait", str(tmp_path / "other")])
    assert (
        "other lists no job of a sweep: none has begun yet, or it is another folder"
        in capsys.readouterr().err
    )
    (tmp_path / "other" / "sweep.json").write_text("[{")
    for name in ([], ["other"]):
        with pytest.raises(SystemExit, match="1"):
            main(["status", *name, "--root", str(tmp_path)])
        assert "sweep.json, which lists the sweep's jobs, is damaged (" in capsys.readouterr().err


def test_a_command_that_fails_is_an_error_and_one_under_way_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    fails = JobCommand([sys.executable, "-c", "print(1 / 0)"], str(tmp_path), {}, str(log))
    with pytest.raises(RunError, match="ended with status 1"):
        fails()
    assert "ZeroDivisionError" in log.read_text()
    says = "import os; print(os.environ['PCR_EXP_JOB'], os.getcwd())"
    JobCommand([sys.executable, "-c", says], str(tmp_path), {"PCR_EXP_JOB": "7"}, str(log))()
    assert log.read_text().endswith(f"7 {tmp_path}\n")


def test_a_job_whose_time_is_up_is_asked_to_end_and_queued_again(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    job = JobCommand([sys.executable, "-c", "pass"], str(tmp_path), {"A": "b"})
    job._process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    again = job.checkpoint()
    assert job._process.returncode == -signal.SIGTERM
    assert (again.function.command, again.function.variables) == (job.command, {"A": "b"})


def test_a_signal_in_mid_wait_ends_the_job_at_once(tmp_path: Path) -> None:
    """submitit calls `checkpoint` in a signal handler of the thread that waits for the job."""
    pytest.importorskip("submitit")
    program = """
import signal, sys, threading, time, os
from pcr_exp.cli.launchers import JobCommand
job = JobCommand([sys.executable, "-c", "import time; time.sleep(60)"], ".", {})
def end(*_):
    began_s = time.monotonic()
    job.checkpoint()
    print(time.monotonic() - began_s, flush=True)
    os._exit(0)
signal.signal(signal.SIGUSR2, end)
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGUSR2)).start()
job()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True)
    assert float(done.stdout) < 20, "the job ends at once, and is not killed after a minute"


SLURM = {"timeout_min": 5, "cpus_per_task": 1, "gpus_per_node": 0, "mem_gb": None, "partition": None}


def test_a_machine_without_slurm_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    settings = {**SLURM, "cluster": "slurm", "max_parallel": 4, "additional": {}}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"cluster=slurm: Could not detect .* hydra\.launcher\.cluster=local"
    ):
        launchers._open_executor(tmp_path, "train", settings)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match="hydra/launcher=slurm needs submitit: pip install submitit"):
        launchers._open_executor(tmp_path, "train", settings)


def test_ray_that_is_not_there_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**_: object) -> None:
            raise ConnectionError("nobody is there")

    monkeypatch.setitem(sys.modules, "ray", Ray)
    with pytest.raises(
        ConfigError, match=r"records\.ray_address=auto: no Ray cluster answers there \(nobody"
    ):
        connect_to_ray("auto", "records.ray_address")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="Ray is not installed"):
        connect_to_ray("auto", "records.ray_address")


def test_who_has_the_number_of_a_killed_job_s_process_is_left_alone(tmp_path: Path, capsys: Output) -> None:
    write_plan(tmp_path, [PlannedJob(0, ["seed=0"], "1", "local")])
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lock = job_lock(tmp_path, 0)
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    holder = {"pid": bystander.pid, "host": os.uname().nodename}
    lock.with_name(lock.name + HOLDER_SUFFIX).write_text(json.dumps(holder))
    with pytest.raises(SystemExit, match="1"):
        main(["stop", str(tmp_path)])
    assert "0 of 1 job asked to end" in capsys.readouterr().out and bystander.poll() is None
    bystander.communicate()
