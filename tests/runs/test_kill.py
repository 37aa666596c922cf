"""Real processes: one killed without warning, and two that start the same run."""

import logging
import multiprocessing
import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.commands import TrainConfig
from pcr_exp.policies.smallest import CosineConfig
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.trainer import Trainer

SPLIT_S = ("train_s", "wait_s", "probe_s", "eval_s", "other_s")
FORKSERVER = multiprocessing.get_context("forkserver")


def train_slowly(config: TrainConfig, errors: Path) -> None:
    """Train slowly enough to be killed in mid-epoch."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    update = Trainer.update

    def slow(*args: Any, **kwargs: Any) -> float:
        time.sleep(0.15)
        return update(*args, **kwargs)

    Trainer.update = slow  # type: ignore[method-assign]
    logging.basicConfig(level=logging.INFO)
    run_training(config, progress=True)


def start(config: TrainConfig, errors: Path) -> ForkServerProcess:
    """Start a process, forked from one that has imported everything."""
    process = FORKSERVER.Process(target=train_slowly, args=(config, errors))
    process.start()
    return process


def wait_for_rows(config: TrainConfig, process: ForkServerProcess, num_rows: int) -> RunDirectory:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.is_alive(), f"ended with {process.exitcode}"
        for folder in Path(config.runs_root).glob("*"):
            path = folder / "rows.jsonl"
            if path.exists() and path.read_bytes().count(b"\n") >= num_rows:
                return RunDirectory(folder)
        time.sleep(0.02)
    pytest.fail("no rows in five minutes")


@pytest.mark.program
def test_killed_in_mid_epoch_and_resumed_the_rows_are_those_of_one_not_killed(
    configure: Any, tmp_path: Path
) -> None:
    """This includes the rows of a policy, which resumes from its state at the checkpoint."""
    scan = CosineConfig(name="cosine", threshold=0.9, first_epoch=1, every_epochs=1, num_images=8)
    changes = {"training__epochs": 3, "training__log_every_steps": 1, "loader__num_workers": 1, "scan": scan}
    whole = run_training(configure(**changes, runs_root=str(tmp_path / "whole")), progress=False)
    wanted = deterministic_part(read_rows(whole.folder / "rows.jsonl"))

    # Row 8 is that of update 5, in epoch 2; before it are two policy rows and an evaluation.
    # Killed then, the run resumes from the checkpoint after update 3, before the policy's second row.
    config = configure(**changes, training__checkpoint_every_steps=3)
    process = start(config, tmp_path / "errors.txt")
    directory = wait_for_rows(config, process, 8)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert directory.status == "interrupted"
    assert len(read_rows(directory.rows_path)) < len(wanted)

    outcome = run_training(config, progress=False)
    assert outcome.status == "finished"
    assert "from the checkpoint after step" in directory.log_path.read_text()
    rows = read_rows(directory.rows_path)
    assert deterministic_part(rows) == wanted
    for row in rows:
        assert sum(row[part] for part in SPLIT_S) == pytest.approx(row["wall_s"], rel=0.01)
    assert f"process {process.pid} on" in directory.log_path.read_text()
    assert "died while holding this run; taking it over" in directory.log_path.read_text()


def test_of_two_processes_at_one_run_the_second_is_refused(configure: Any, tmp_path: Path) -> None:
    config = configure(training__epochs=50, training__log_every_steps=1)
    first = start(config, tmp_path / "first.txt")
    try:
        directory = wait_for_rows(config, first, 1)
        second = start(config, tmp_path / "second.txt")
        second.join(300)
        assert second.exitcode == 1
        errors = (tmp_path / "second.txt").read_text()
        assert f"{directory.path} is in use by process {first.pid} on " in errors
        assert first.is_alive()
    finally:
        first.terminate()
        first.join(300)
    assert first.exitcode == 143
    assert "asked to stop: saving a checkpoint" in (tmp_path / "first.txt").read_text()
    assert directory.status == "interrupted"
    assert directory.checkpoint_path.exists()
