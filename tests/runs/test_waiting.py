"""Followers wait for the first process as long as it works, and stop waiting when it dies."""

import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from gloo_processes import environment, free_port, start

from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.runs import train_run, validation
from pcr_exp.training.distributed import processes as processes_module
from pcr_exp.training.distributed.processes import Processes, join_processes, named_process_death

TIMEOUT_S = 5.0


def busy_first(rank: int, port: int, config: TrainConfig, die: bool) -> None:
    """Train with a first process that is busy for longer than the start timeout, or dies if `die`."""
    os.environ |= environment(rank, 2, port)
    processes_module._START_TIMEOUT = timedelta(seconds=TIMEOUT_S)
    join_processes(2)  # imports take longer on one than on the other
    prepare, scores = train_run.prepare_data, validation.scores_of

    def slowly(work: Any) -> Any:
        def done(*args: Any, **kwargs: Any) -> Any:
            time.sleep(TIMEOUT_S + 1)
            if die:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*args, **kwargs)

        return done

    if rank == 0:
        train_run.prepare_data = slowly(prepare)
        validation.scores_of = slowly(scores)
    died_s = time.monotonic()
    try:
        train_run.run_training(config, progress=False)
    except RunError as error:
        assert re.match(r"rank 0 \(process \d+ on .*\) of this run has ended", str(error)), str(error)
        waited_s = time.monotonic() - died_s
        Path(config.runs_root, "told").write_text(str(waited_s))
        os._exit(7)


def run(config: TrainConfig, *, die: bool = False) -> None:
    context = start(busy_first, (free_port(), config, die), 2, join=False)
    assert context is not None
    for process in context.processes:
        process.join()
    assert [process.exitcode for process in context.processes] == ([-signal.SIGKILL, 7] if die else [0, 0])


@pytest.mark.program
@pytest.mark.parametrize("die", [False, True], ids=["works", "dies"])
def test_followers_wait_as_long_as_the_first_process_works(configure: Any, die: bool) -> None:
    config = configure(training__epochs=1)
    config.world_size = 2
    Path(config.runs_root).mkdir()
    run(config, die=die)
    told = Path(config.runs_root, "told")
    assert told.exists() == die
    if die:
        assert float(told.read_text()) < TIMEOUT_S + 1 + 60, (
            "a process that imports takes its time; no timeout"
        )


def test_other_errors_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), named_process_death(Processes()):
        raise RuntimeError("shapes differ")
    monkeypatch.setattr(processes_module, "_DYING_S", 0.0)
    with (
        pytest.raises(RunError, match="another process of this run has ended"),
        named_process_death(Processes()),
    ):
        raise RuntimeError("[pair.cc:561] Connection closed by peer [127.0.0.1]:27313. Typically ...")


def test_processes_that_never_come_are_missed_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in environment(0, 2, free_port()).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(processes_module, "_START_TIMEOUT", timedelta(seconds=2))
    with pytest.raises(RunError, match=r"not all 2 processes of this run started within 2 s"):
        join_processes(2)
