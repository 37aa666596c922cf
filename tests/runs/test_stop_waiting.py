"""A run that is asked to stop while no update is running does not wait for one to end."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.loading import fetch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import Row, deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.trainer import Trainer


def rows_of(config: Any) -> list[Row]:
    return deterministic_part(read_rows(run_training(config, progress=False).folder / "rows.jsonl"))


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed loader soon abandons a hanging read."""
    monkeypatch.setattr(fetch, "_JOIN_S", 0.5)


class Interruption:
    """Sends an interrupt some seconds after `send_after`, while reads wait for `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self._sent_s: list[float] = []
        self._timers: list[threading.Timer] = []

    def send_after(self, seconds: float) -> None:
        self._timers.append(threading.Timer(seconds, self._send))
        self._timers[-1].start()

    def _send(self) -> None:
        self._sent_s.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def assert_heard_at_once(self, config: Any) -> Path:
        """Assert that the run ends long before the reads do; return its folder."""
        try:
            with pytest.raises(KeyboardInterrupt):
                run_training(config, progress=False)
            took_s = time.monotonic() - self._sent_s[0]
        finally:
            self.goes_on.set()
            for timer in self._timers:
                timer.cancel()  # if the run ended early, its interrupt must not hit something else
        assert took_s < 20, "the read would have taken a minute; the loader leaves it behind"
        (folder,) = (path for path in Path(config.runs_root).iterdir() if path.is_dir())
        assert RunDirectory(folder).status == "interrupted"
        return folder


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_interrupt_while_storage_stands_still_is_heard_at_once(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    # Four batches per record, so the epoch is not fully read when storage stands still.
    changes = {"loader__num_workers": num_workers, "loader__prefetch_batches": 1, "training__batch_size": 4}
    changes |= {"loader__lanes": 1, "loader__shuffle_records": 1, "loader__records_ahead": 1}
    wanted = rows_of(configure(**changes, runs_root=str(tmp_path / "whole")))

    config = configure(**changes)
    stands_still, interruption = threading.Event(), Interruption()
    update, read = Trainer.update, RecordSet.read_prefix

    def update_and_stand_still(trainer: Trainer, *args: Any, **kwargs: Any) -> float:
        if kwargs["step"] == 1:
            stands_still.set()
            interruption.send_after(1)  # what was read ahead is used up by then
        return update(trainer, *args, **kwargs)

    def read_late(records: RecordSet, record: int, group: int) -> Any:
        if stands_still.is_set():
            interruption.goes_on.wait(60)
        return read(records, record, group)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "update", update_and_stand_still)
        patched.setattr(RecordSet, "read_prefix", read_late)
        folder = interruption.assert_heard_at_once(config)
    assert RunDirectory(folder).checkpoint_path.exists()
    assert rows_of(config) == wanted


def test_an_interrupt_while_the_loader_pauses_for_an_evaluation_is_heard_at_once(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads ahead for the next epoch stand still. The evaluation is made when the run resumes."""
    wanted = rows_of(configure(runs_root=str(tmp_path / "whole")))
    config = configure()
    interruption = Interruption()
    times_read: Counter[tuple[str, int]] = Counter()
    read, pause = RecordSet.read_prefix, RecordLoader.pause

    def pause_and_interrupt(loader: RecordLoader) -> None:
        assert max(times_read.values()) == 2, "a read of the next epoch is in flight"
        interruption.send_after(1)
        pause(loader)

    def read_once(records: RecordSet, record: int, group: int) -> Any:
        times_read[records.folder, record] += 1
        if times_read[records.folder, record] > 1:
            interruption.goes_on.wait(60)
        return read(records, record, group)

    with monkeypatch.context() as patched:
        patched.setattr(RecordLoader, "pause", pause_and_interrupt)
        patched.setattr(RecordSet, "read_prefix", read_once)
        folder = interruption.assert_heard_at_once(config)
    assert not any(row["kind"] == "eval" for row in read_rows(folder / "rows.jsonl"))
    assert rows_of(config) == wanted


def test_an_interrupt_while_figures_are_drawn_acts_at_once(configure: Any) -> None:
    config = configure(training__epochs=1)

    def draw(_: Path) -> dict[str, Path]:
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("drew on")

    with pytest.raises(KeyboardInterrupt):
        run_training(config, progress=False, draw=draw)
    (folder,) = (path for path in Path(config.runs_root).iterdir() if path.is_dir())
    assert RunDirectory(folder).status == "interrupted"
    assert run_training(config, progress=False, draw=lambda _: {}).status == "finished"
