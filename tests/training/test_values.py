"""Multi-label and regression tasks: targets, losses and metrics, against scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score

from pcr_exp.config.training import TaskConfig
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.training.task import joined, open_task, primary_metric_named
from pcr_exp.training.values import MEAN_AP, R2, average_precision

SETS = ("", "cat", "cat;dog", "dog", "eel")
NUMBERS = ("-3", "0.5", "1e2", "7")


def test_sets_become_rows_and_numbers_deviations() -> None:
    several = open_task(TaskConfig(name="multilabel"), SETS)
    assert several.num_outputs == 3
    assert several.target(torch.tensor([2, 0, 4])).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    number = open_task(TaskConfig(name="regression"), NUMBERS)
    values = np.array([-3, 0.5, 100, 7])
    wanted = (values - values.mean()) / values.std()
    assert number.num_outputs == 1
    np.testing.assert_allclose(number.target(torch.arange(4)).numpy(), wanted, rtol=1e-6)


def test_mean_average_precision_is_scikit_learns_and_joins() -> None:
    task = open_task(TaskConfig(name="multilabel"), SETS)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (60,), generator=generator)  # none with an eel
    outputs = torch.randn(60, 3, generator=generator).round(decimals=1)  # with ties
    target = task.target(labels)
    parts = [task.tally(outputs[part], target[part]) for part in (slice(0, 17), slice(17, None))]
    found = task.metrics(joined(parts))
    wanted = [average_precision_score(target[:, i], outputs[:, i]) for i in range(2)]
    assert found["val_mean_ap"] == pytest.approx(np.mean(wanted))
    by_class = found["val_average_precision"]
    assert by_class == {"cat": pytest.approx(wanted[0]), "dog": pytest.approx(wanted[1]), "eel": None}
    plain = torch.nn.functional.binary_cross_entropy_with_logits(outputs, target).item()
    assert found["val_loss"] == pytest.approx(plain) == pytest.approx(task.loss(outputs, target).item())


def test_average_precision_under_weights_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    scores, positive = rng.normal(size=50).round(1), rng.random(50) < 0.3
    weights = rng.integers(0, 4, (5, 50)).astype(float)
    wanted = [average_precision_score(positive, scores, sample_weight=row) for row in weights]
    np.testing.assert_allclose(average_precision(scores, positive, weights), wanted)
    assert math.isnan(average_precision(scores, np.zeros(50, bool), weights)[0])


def test_r2_and_mean_absolute_error_are_scikit_learns_in_the_labels_unit() -> None:
    task = open_task(TaskConfig(name="regression"), NUMBERS)
    values = np.array([float(name) for name in NUMBERS])
    labels, outputs = torch.tensor([0, 1, 2, 3, 3]), torch.tensor([[0.3], [-1.0], [0.7], [0.0], [2.0]])
    found = task.metrics(task.tally(outputs, task.target(labels)))
    said = outputs[:, 0].numpy() * values.std() + values.mean()
    assert found["val_r2"] == pytest.approx(r2_score(values[labels], said), rel=1e-5)
    assert found["val_mae"] == pytest.approx(mean_absolute_error(values[labels], said), rel=1e-5)
    assert found["val_loss"] == pytest.approx(task.loss(outputs, task.target(labels)).item())


def test_what_guessing_reaches() -> None:
    several = open_task(TaskConfig(name="multilabel"), SETS)
    share = several.majority_share_of(np.array([4, 2, 2, 2, 0]))
    assert share == pytest.approx((0.4 + 0.4) / 2), "of classes that some image has"
    assert primary_metric_named("mean_ap") is MEAN_AP and MEAN_AP.guessed(share, 3) == share
    assert several.majority_share_of(np.array([4, 0, 0, 0, 0])) is None
    number = open_task(TaskConfig(name="regression"), NUMBERS)
    assert number.majority_share_of(np.ones(4, dtype=np.int64)) is None and R2.guessed(None, 1) == 0
    mean = torch.zeros(4, 1)  # always predicts the mean
    assert number.metrics(number.tally(mean, number.target(torch.arange(4))))["val_r2"] == pytest.approx(0)


def test_labels_that_do_not_suit_a_task_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task=regression: 'dog' is not a number; wanted .*kind=number"):
        open_task(TaskConfig(name="regression"), ("1", "dog"))
    with pytest.raises(ConfigError, match=r"task=regression: 'nan' is not a number"):
        open_task(TaskConfig(name="regression"), ("1", "nan"))
    with pytest.raises(ConfigError, match=r"task=multilabel: no image has a class; wanted sets .*several"):
        open_task(TaskConfig(name="multilabel"), ("",))
    for name in ("multilabel", "regression"):
        with pytest.raises(ConfigError, match=f"label_smoothing=0.1: wanted 0 with task={name}"):
            open_task(TaskConfig(name=name), ("1", "2"), 0.1)


def test_metrics_that_are_not_defined_say_so() -> None:
    several = open_task(TaskConfig(name="multilabel"), SETS)
    with pytest.raises(RunError, match="mean average precision is undefined: none of 2 images has a class"):
        several.metrics(several.tally(torch.zeros(2, 3), several.target(torch.tensor([0, 0]))))
    number = open_task(TaskConfig(name="regression"), NUMBERS)
    with pytest.raises(RunError, match="R2 is undefined: all 2 images have the same number"):
        number.metrics(number.tally(torch.zeros(2, 1), number.target(torch.tensor([1, 1]))))
