"""The learning rate against the descriptions in the papers."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.training import TrainingConfig, scaled_learning_rate
from pcr_exp.training.trainer import learning_rate


def config(**changes: Any) -> TrainingConfig:
    fields = {"epochs": 90, "batch_size": 8, "image_size": 32, "eval_image_size": 32, "learning_rate": 0.1}
    return TrainingConfig(**{**fields, **changes})


def test_step_divides_by_ten_at_each_milestone() -> None:
    schedule = config(schedule="step", lr_milestones=[30, 60, 80])
    by_epoch = [learning_rate(schedule, epoch * 7, 7) for epoch in (0, 29, 30, 59, 60, 79, 80, 89)]
    assert by_epoch == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 1e-4, 1e-4])
    assert learning_rate(schedule, 30 * 7 - 1, 7) == 0.1, "the last update before a milestone"


def test_warmup_climbs_in_equal_steps_to_the_full_rate() -> None:
    schedule = config(schedule="constant", warmup_epochs=2.5)
    rates = [learning_rate(schedule, step, 4) for step in range(12)]
    assert rates[:10] == pytest.approx([0.01 * n for n in range(1, 11)])
    assert rates[10:] == [0.1, 0.1]


def test_cosine_ends_near_zero_and_is_half_in_the_middle() -> None:
    schedule = config(schedule="cosine", epochs=11, warmup_epochs=1)
    assert learning_rate(schedule, 10, 10) == 0.1
    assert learning_rate(schedule, 60, 10) == pytest.approx(0.05)
    assert learning_rate(schedule, 109, 10) == pytest.approx(0.05 * (1 + math.cos(math.pi * 0.99)))


def test_a_run_that_is_all_warmup_never_divides_by_zero() -> None:
    schedule = config(schedule="cosine", epochs=1, warmup_epochs=1)
    assert [learning_rate(schedule, step, 2) for step in range(2)] == pytest.approx([0.05, 0.1])


@given(
    kind=st.sampled_from(["step", "cosine", "constant"]),
    warmup_epochs=st.floats(0, 5),
    steps_per_epoch=st.integers(1, 50),
    data=st.data(),
)
def test_every_rate_lies_in_zero_to_the_full_rate(
    kind: str, warmup_epochs: float, steps_per_epoch: int, data: st.DataObject
) -> None:
    schedule = config(schedule=kind, warmup_epochs=warmup_epochs, epochs=6, lr_milestones=[2, 4])
    step = data.draw(st.integers(0, 6 * steps_per_epoch - 1))
    assert 0 < learning_rate(schedule, step, steps_per_epoch) <= 0.1 * (1 + 1e-12)


def test_linear_scaling_rule() -> None:
    assert scaled_learning_rate(0.1, 256) == 0.1
    assert scaled_learning_rate(0.1, 8192) == pytest.approx(3.2)  # Goyal et al. 2017, table 1
