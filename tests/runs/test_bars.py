import logging
import sys

import pytest

from pcr_exp.runs.bars import _logs_above_bar, training_bar
from pcr_exp.system.progress import counting_bar

TOTALS = {
    "samples_seen": 800,
    "train_s": 6.0,
    "wait_s": 2.0,
    "eval_s": 5.0,
    "wall_s": 15.0,
    "bytes_read": 20 * 2**20,
}
TRAIN = TOTALS | {
    "kind": "train",
    "epoch": 2,
    "step": 7,
    "images_per_s": 123.4,
    "storage_mib_per_s": 5.67,
    "wait_share": 0.25,
}


def test_it_shows_epoch_rates_and_accuracy() -> None:
    with training_bar(epochs=3, total_steps=10, step=4, shown=False) as bar:
        bar.update(TRAIN)
        bar.update(TOTALS | {"kind": "eval", "epoch": 2, "step": 8, "val_top1": 0.5})
        (task,) = bar._bar.tasks
        assert task.fields["rates"] == "123 images/s, 5.7 MiB/s, 25% waiting"
        assert (task.fields["epoch"], task.fields["score"]) == ("epoch 2/3", "top-1 0.500")


def test_storage_that_is_slow_is_not_shown_as_none() -> None:
    with training_bar(epochs=3, total_steps=10, step=4, shown=False) as bar:
        bar.update(TRAIN | {"storage_mib_per_s": 0.0512})
        (task,) = bar._bar.tasks
        assert task.fields["rates"] == "123 images/s, 0.051 MiB/s, 25% waiting"


def test_its_last_line_shows_the_totals_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """800 images in 8 s of training and waiting, and 20 MiB in the 10 s outside evaluation."""
    with training_bar(epochs=3, total_steps=10, step=4, shown=True) as bar:
        bar.update(TRAIN | {"images_per_s": 9.0, "storage_mib_per_s": 0.0, "wait_share": 0.01})
        bar.update(TOTALS | {"kind": "eval", "epoch": 3, "step": 10, "val_top1": 0.5})
    shown = " ".join(capsys.readouterr().err.split())
    for part in ("epoch 3/3", "in all 100 images/s, 2.0 MiB/s, 25% waiting", "top-1 0.500"):
        assert part in shown


def test_an_interrupted_run_shows_the_totals_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        training_bar(epochs=3, total_steps=10, step=4, shown=True) as bar,
    ):
        bar.update(TRAIN)
        raise KeyboardInterrupt
    assert "in all 100 images/s" in " ".join(capsys.readouterr().err.split())


def test_a_run_with_no_row_yet_has_no_totals(capsys: pytest.CaptureFixture[str]) -> None:
    with training_bar(epochs=3, total_steps=10, step=0, shown=True):
        pass
    assert "in all" not in capsys.readouterr().err


def test_nothing_is_shown_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        training_bar(epochs=3, total_steps=10, step=0, shown=False) as bar,
        counting_bar("records", shown=False) as tell,
    ):
        bar.update(TRAIN)
        tell(1, 2)
    assert capsys.readouterr() == ("", "")


def test_records_that_are_there_show_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with counting_bar("records", shown=True):
        pass
    assert "records" not in capsys.readouterr().err
    with counting_bar("records", shown=True) as tell:
        tell(3, 4)
    assert "3/4" in capsys.readouterr().err


def test_console_logs_go_above_a_live_bar_and_back() -> None:
    handler = logging.StreamHandler(sys.__stderr__)
    logging.getLogger().addHandler(handler)
    try:
        with _logs_above_bar(live=True):
            assert handler.stream is sys.stderr
        assert handler.stream is sys.__stderr__
    finally:
        logging.getLogger().removeHandler(handler)
