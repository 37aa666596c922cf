"""Error feedback loses nothing that a codec leaves out."""

import math

import pytest
import torch

from pcr_exp.gradients.tensors import Feedback
from pcr_exp.gradients.threelc import ThreeLC


def whole_numbers(step: int, size: int = 71) -> torch.Tensor:
    """Return values whose sums and halves are exact in float32."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(-1000, 1001, (size,), generator=generator).float()


def test_sent_and_residual_are_the_input_exactly() -> None:
    feedback = Feedback(ThreeLC(1.0))
    inputs, sent = torch.zeros(71), torch.zeros(71)
    for step in range(50):
        values = whole_numbers(step)
        inputs += values
        sent += feedback.encode(values)[1]
        residual = feedback.residual
        assert residual is not None
        assert torch.equal(sent + residual, inputs)


@pytest.mark.parametrize("sparsity", [1.5, 1.9])
def test_sent_and_residual_are_the_input_up_to_rounding(sparsity: float) -> None:
    feedback = Feedback(ThreeLC(sparsity))
    inputs, sent = torch.zeros(71).double(), torch.zeros(71).double()
    for step in range(200):
        values = whole_numbers(step)
        inputs += values
        sent += feedback.encode(values)[1]
    residual = feedback.residual
    assert residual is not None
    torch.testing.assert_close(sent + residual, inputs, rtol=0, atol=200 * 2.0**-12)


@pytest.mark.parametrize("sparsity", [1.0, 1.9])
def test_a_step_loses_nothing_whatever_the_values(sparsity: float) -> None:
    feedback = Feedback(ThreeLC(sparsity))
    before = torch.zeros(1000)
    for step in range(30):
        values = torch.randn(1000, generator=torch.Generator().manual_seed(step)) * 10.0 ** (step % 5 - 2)
        _, sent = feedback.encode(values)
        after = feedback.residual
        assert after is not None
        # In double precision, sums of float32 numbers of these sizes are exact.
        assert torch.equal(sent.double() + after.double(), (values + before).double())
        before = after


def test_the_residual_is_at_most_half_of_what_was_sent() -> None:
    feedback = Feedback(ThreeLC(1.75))
    for step in range(20):
        _, sent = feedback.encode(torch.randn(500, generator=torch.Generator().manual_seed(step)))
        residual = feedback.residual
        assert residual is not None
        assert residual.abs().max() <= sent.abs().max() / 2


def test_the_input_is_left_alone() -> None:
    values = whole_numbers(0)
    Feedback(ThreeLC(1.0)).encode(values)
    assert torch.equal(values, whole_numbers(0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_update_does_not_poison_the_residual(bad: float) -> None:
    feedback, spared = Feedback(ThreeLC(1.5)), Feedback(ThreeLC(1.5))
    for each in (feedback, spared):
        each.encode(whole_numbers(0))
    poisoned = whole_numbers(1)
    poisoned[3] = bad
    assert feedback.encode(poisoned)[1].isnan().all()
    assert torch.equal(feedback.encode(whole_numbers(2))[0], spared.encode(whole_numbers(2))[0])


def test_a_sum_beyond_float32_is_a_bad_update() -> None:
    feedback = Feedback(ThreeLC(1.0))
    largest = torch.finfo(torch.float32).max
    feedback.encode(torch.tensor([largest, 0.49 * largest]))
    before = feedback.residual
    assert feedback.encode(torch.tensor([0.0, largest]))[1].isnan().all()
    assert feedback.residual is before
