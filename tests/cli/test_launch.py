"""Behaviour that all runners share: exit statuses, and messages about commands and sweeps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.singleton import Singleton
from omegaconf import OmegaConf

from pcr_exp.cli.jobs import (
    BEGUN,
    DIED,
    FAILED,
    INTERRUPTED,
    Outcome,
    SweepFolder,
    read_ended,
    read_numbered,
    read_outcomes,
    write_outcome,
)
from pcr_exp.cli.launch import add_overrides, launch, leave_sweeps_alone, print_sweep_state
from pcr_exp.cli.launchers import _started
from pcr_exp.config.commands import FiguresConfig
from pcr_exp.errors import RunError

Launched = Callable[..., int]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    """Run a command line in this process and return its exit status. Logging is left to pytest."""
    before = Singleton.get_state()

    def give(*typed: str) -> int:
        unlogged = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
        monkeypatch.setattr("sys.argv", ["figures", *typed, *unlogged])
        with pytest.raises(SystemExit) as ended:
            launch(task, "figures", FiguresConfig, print)
        return int(ended.value.code or 0)

    yield give
    Singleton.set_state(before)


def task(config: FiguresConfig) -> str:
    """End as `out` requests."""
    if config.out == "bad":
        raise RunError("this one cannot be done")
    if config.out == "bug":
        raise ZeroDivisionError("in the task")
    if config.out == "interrupted":
        raise KeyboardInterrupt
    return "finished"


@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("out=good", 0, ""),
        ("out=bad", 1, "error: this one cannot be done"),
        ("out=bug", 1, "ZeroDivisionError: in the task"),
        ("out=interrupted", 130, "interrupted; run the same command again to continue"),
        ("out=one,two", 1, "which needs -m"),
        ("target=high", 1, "target"),
        ("runner=smoke", 1, "error: runner=smoke: wanted a command that trains or measures"),
        ("runs_rot=here", 1, "error: runs_rot: there is no such setting. Did you mean runs_root?"),
    ],
)
def test_a_command_ends_with_a_status_and_a_word(
    launched: Launched, capsys: pytest.CaptureFixture[str], typed: str, status: int, told: str
) -> None:
    assert launched(typed) == status
    errors = capsys.readouterr().err
    assert told in errors
    assert ("Traceback" in errors) == (typed == "out=bug"), "of a bug alone"


def test_a_failed_job_does_not_stop_a_sweep_and_is_listed(
    launched: Launched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert launched("-m", "out=bad,bug,good", f"hydra.sweep.dir={tmp_path}") == 1
    assert "3 jobs, 2 failed" in capsys.readouterr().err
    assert [outcome.status for outcome in read_outcomes(tmp_path)] == [FAILED, FAILED, "finished"]


def test_outcomes_that_nobody_wrote_are_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_sweep_state(tmp_path, 0) == 1
    assert "no job of this sweep has reported an outcome in" in capsys.readouterr().err
    assert print_sweep_state(tmp_path, 130) == 130


def test_each_process_of_a_run_tells_of_its_own_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_outcome(tmp_path, 0, Outcome("a", "finished"))
    monkeypatch.setenv("RANK", "1")
    write_outcome(tmp_path, 0, Outcome("a", FAILED, "here"))
    assert read_outcomes(tmp_path) == [Outcome("a", FAILED, "here")]
    monkeypatch.setenv("RANK", "0")
    assert read_outcomes(tmp_path) == [Outcome("a", "finished")]


def test_several_processes_print_one_table_and_each_its_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        write_outcome(tmp_path, 0, Outcome("a", "finished"))
        write_outcome(tmp_path, 1, Outcome("b", "finished"))
    assert print_sweep_state(tmp_path, 0) == 0 and capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    assert print_sweep_state(tmp_path, 0) == 0 and "2 jobs, 0 failed" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    write_outcome(tmp_path, 1, Outcome("b", FAILED, "no port"))
    assert print_sweep_state(tmp_path, 0) == 1 and "no port" in capsys.readouterr().err


def test_a_job_that_did_not_end_was_stopped_or_died(tmp_path: Path) -> None:
    write_outcome(tmp_path, 0, Outcome("a", BEGUN))
    write_outcome(tmp_path, 1, Outcome("b", "skipped"))
    assert [o.status for o in read_ended(tmp_path, interrupted=True)] == [INTERRUPTED, "skipped"]
    assert [o.status for o in read_ended(tmp_path, interrupted=False)] == [DIED, "skipped"]
    assert print_sweep_state(tmp_path, 0) == 1


def test_what_an_earlier_sweep_left_in_a_chosen_folder_is_not_this_ones(tmp_path: Path) -> None:
    write_outcome(tmp_path, 3, Outcome("old", FAILED))
    (tmp_path / "job-notes.json").write_text("the user's own")
    config = OmegaConf.create({"hydra": {"runtime": {"cwd": "/"}, "sweep": {"dir": str(tmp_path)}}})
    SweepFolder().on_multirun_start(config)
    assert read_outcomes(tmp_path) == []
    assert SweepFolder.begun == tmp_path
    assert (tmp_path / "job-notes.json").exists()


def test_a_path_of_the_program_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/data/user=me/train.py", "-m", "seed=1"])
    add_overrides(["dry_run=true"])
    assert sys.argv == ["/data/user=me/train.py", "-m", "dry_run=true", "seed=1"]


def test_a_dry_run_has_a_sweep_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["hydra/launcher=slurm", "++hydra.launcher.cluster=local", "hydra.sweep.dir=/mine", "seed=1,2"]
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", *typed])
    leave_sweeps_alone()
    _, multirun, folder, launcher, seeds = sys.argv
    assert (multirun, launcher, seeds) == ("-m", "hydra/launcher=basic", "seed=1,2")
    assert Path(folder.removeprefix("hydra.sweep.dir=")).is_dir() and "/mine" not in folder


def test_of_more_jobs_than_four_digits_count_none_is_lost(tmp_path: Path) -> None:
    for number in (0, 9999, 10_000, 12_345):
        write_outcome(tmp_path, number, Outcome(str(number), BEGUN))
    assert sorted(read_numbered(tmp_path)) == [0, 9999, 10_000, 12_345]


def test_jobs_are_started_by_the_script_that_began_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that began the sweep starts its jobs, also from a folder with a space in its name."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys, "argv", ["/my work/experiments/train.py"])
    assert _started() == ["/my work/experiments/train.py"]
    monkeypatch.setattr(sys, "argv", ["pcr-exp train"])
    assert _started() == ["-m", "pcr_exp", "train"]
