"""Runs that are timed: they can have the machine to themselves, and rows hold the CPU share of others."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.analysis.reporting_rules import others_cpu_share
from pcr_exp.analysis.runs import read_runs, read_timed_runs
from pcr_exp.config.training import TrainingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.runs import session
from pcr_exp.runs.packed import pack_runs
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import lock
from pcr_exp.system.lock import hold_host


class Crowded:
    """Stand-in for `OthersCpu`: others take a fifth; for the second row, the share is unknown."""

    def __init__(self, roots: list[int]) -> None:
        self._shares = iter([0.2, None, 0.2, 0.2, 0.2, 0.2])
        assert len(roots) == 1

    def begin(self) -> None:
        pass

    def share(self) -> float | None:
        return next(self._shares)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the host's lock, so that no run outside the test waits for the lock or holds it."""
    folder = tmp_path / "host"
    folder.mkdir()
    monkeypatch.setattr(lock, "shared_folder", lambda: folder)
    return folder


def test_rows_say_what_others_took_and_are_read_back_packed(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "OthersCpu", Crowded)
    run_training(configure(training__epochs=1, training__log_every_steps=1), progress=False)
    (run,) = read_runs(tmp_path / "runs")
    train = [row for row in run.rows if row["kind"] == "train"]
    assert [row["others_cpu_share"] for row in train[:3]] == [0.2, None, 0.2]
    assert not any("others_cpu_share" in row for row in run.rows if row["kind"] != "train")
    assert others_cpu_share(run.rows) == pytest.approx(0.2)
    pack_runs(tmp_path / "runs", tmp_path / "packed")
    assert read_runs(tmp_path / "packed") == [run]


def test_an_exclusive_run_waits_for_another_and_says_for_whom(
    configure: Any, own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(training__exclusive=True, training__epochs=1)
    caplog.set_level(logging.WARNING)
    ended = []

    def train() -> None:
        ended.append(run_training(config, progress=False).status)

    with hold_host(lambda _: None):
        waiting = threading.Thread(target=train)
        waiting.start()
        while not caplog.messages:
            time.sleep(0.02)
        assert "training.exclusive=true: waiting for process" in caplog.messages[0]
        assert not ended
        assert [path.name for path in own_folder.iterdir()], "the lock is held"
    waiting.join()
    assert ended == ["finished"]
    assert not list(own_folder.iterdir())
    with hold_host(lambda _: None):
        assert run_training(config, progress=False).status == "skipped", "what is finished waits for nobody"


def test_exclusive_is_no_part_of_what_is_learned_but_its_seconds_are_kept_apart(
    configure: Any, own_folder: Path
) -> None:
    assert own_folder.is_dir()
    first = run_training(configure(training__epochs=1), progress=False)
    again = run_training(configure(training__epochs=1, training__exclusive=True), progress=False)
    assert again.status == "finished"
    assert again.run_id.startswith(f"{first.run_id}-t"), "seconds beside others are not its seconds"


def test_a_run_that_measures_seconds_ends_after_them_without_a_result(configure: Any, tmp_path: Path) -> None:
    config = configure(
        training__epochs=1000,
        training__stop_after_s=0.3,
        training__log_every_steps=1000,
        training__eval_every_epochs=1000,
    )
    assert run_training(config, progress=False).status == "finished"
    (run,) = read_timed_runs(tmp_path / "runs")
    assert {row["kind"] for row in run.rows} == {"train"}
    assert run.rows[-1]["train_s"] + run.rows[-1]["wait_s"] >= 0.3, "the last update has a row"
    assert read_runs(tmp_path / "runs") == []
    assert run_training(config, progress=False).status == "skipped"


@pytest.mark.parametrize("seconds", [0.0, float("inf")])
def test_it_ends_after_a_time_that_comes(seconds: float) -> None:
    with pytest.raises(ConfigError, match=f"training.stop_after_s={seconds}: wanted null or above 0"):
        TrainingConfig(
            epochs=1, batch_size=1, image_size=32, eval_image_size=32, learning_rate=1, stop_after_s=seconds
        )
