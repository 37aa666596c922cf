"""Predicted times to accuracy, compared with those of runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.pcr.model_validation import TIME_COLUMNS, predict_times, steady_images_per_s
from experiments.pcr.model_validation_page import times_to_markdown
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import read_runs

# Runs of `make_run`: 64 images an epoch, 1,000 bytes x group an image, 8 MiB/s; 8,389 images/s at group 1.


def test_compute_comes_from_the_group_1_runs_and_epochs_from_the_run(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    make_run(tmp_path, "group_1", seed=0, epoch_s=10)  # 6.4 images/s
    make_run(tmp_path, "group_1", seed=1, epoch_s=5)  # 12.8 images/s
    make_run(tmp_path, "group_2", epoch_s=8, top1=(0.3, 0.7, 0.9))
    make_run(tmp_path, "group_5", epoch_s=8, top1=(0.3, 0.4, 0.5))  # never reaches the target
    (found,) = predict_times(run_frame(read_runs(tmp_path))).to_dict("records")
    assert found["scan"] == "group_2"
    assert found["compute_images_per_s"] == pytest.approx(9.6)
    assert found["bandwidth_images_per_s"] == pytest.approx(8 * 2**20 / 2000)
    assert (found["bound"], found["epochs_to_accuracy"], found["num_train"]) == ("compute", 2, 64)
    # The first window (an epoch has no more than 64 images) is read before training starts.
    assert found["start_s"] == pytest.approx(64 * 2000 / (8 * 2**20))
    assert found["predicted_s"] == pytest.approx(2 * 64 / 9.6 + found["start_s"])
    assert found["measured_s"] == 16
    assert found["error"] == pytest.approx(found["predicted_s"] / 16 - 1)


def test_without_a_group_1_run_nothing_is_predicted(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, "group_2")
    times = predict_times(run_frame(read_runs(tmp_path)))
    assert times.empty and list(times.columns) == TIME_COLUMNS


def test_the_start_is_not_part_of_a_steady_rate(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, "group_1", epoch_s=10)
    rows = read_runs(tmp_path)[0].rows
    rows[0] = rows[0] | {"wait_s": rows[0]["wait_s"] - 5.0, "samples_seen": 32}
    assert steady_images_per_s(rows) == pytest.approx((3 * 64 - 32) / (30 - 5))


def test_the_table_names_every_run(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    for scan, epoch_s in (("group_1", 10), ("group_2", 10), ("group_5", 20)):
        make_run(tmp_path, scan, epoch_s=epoch_s)
    text = times_to_markdown(predict_times(run_frame(read_runs(tmp_path))))
    assert "| compute | 1 | 2 | 1 within 10 % |" in text
    assert "| photos · photo | group 5 | 0 | 2 | compute |" in text
