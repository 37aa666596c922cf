"""Nothing that a codec leaves out is lost."""

import math

import pytest
import torch

from pcr_exp.gradients.feedback import Feedback
from pcr_exp.gradients.threelc import ThreeLC

CPU = torch.device("cpu")


def whole_numbers(step: int, size: int = 71) -> torch.Tensor:
    """Values whose sums and halves float32 holds exactly."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(-1000, 1001, (size,), generator=generator).float()


def test_sent_and_residual_are_the_input_exactly() -> None:
    feedback = Feedback(ThreeLC(1.0))
    inputs, sent = torch.zeros(71), torch.zeros(71)
    for step in range(50):
        values = whole_numbers(step)
        inputs += values
        sent += feedback.encode("layer", values)[1]
        residual = feedback.residual("layer")
        assert residual is not None
        assert torch.equal(sent + residual, inputs)


@pytest.mark.parametrize("sparsity", [1.5, 1.9])
def test_sent_and_residual_are_the_input_up_to_rounding(sparsity: float) -> None:
    feedback = Feedback(ThreeLC(sparsity))
    inputs, sent = torch.zeros(71).double(), torch.zeros(71).double()
    for step in range(200):
        values = whole_numbers(step)
        inputs += values
        sent += feedback.encode("layer", values)[1]
    residual = feedback.residual("layer")
    assert residual is not None
    torch.testing.assert_close(sent + residual, inputs, rtol=0, atol=200 * 2.0**-12)


@pytest.mark.parametrize("sparsity", [1.0, 1.9])
def test_a_step_loses_nothing_whatever_the_values(sparsity: float) -> None:
    feedback = Feedback(ThreeLC(sparsity))
    before = torch.zeros(1000)
    for step in range(30):
        values = torch.randn(1000, generator=torch.Generator().manual_seed(step)) * 10.0 ** (step % 5 - 2)
        _, sent = feedback.encode("layer", values)
        after = feedback.residual("layer")
        assert after is not None
        # In double precision: float32 numbers of such sizes add up exactly there.
        assert torch.equal(sent.double() + after.double(), (values + before).double())
        before = after


def test_the_residual_is_at_most_half_of_what_was_sent() -> None:
    feedback = Feedback(ThreeLC(1.75))
    for step in range(20):
        _, sent = feedback.encode("layer", torch.randn(500, generator=torch.Generator().manual_seed(step)))
        residual = feedback.residual("layer")
        assert residual is not None
        assert residual.abs().max() <= sent.abs().max() / 2


def test_layers_have_their_own_residuals() -> None:
    feedback = Feedback(ThreeLC(1.0))
    feedback.encode("one", whole_numbers(0))
    feedback.encode("other", whole_numbers(1, size=5))
    alone = Feedback(ThreeLC(1.0))
    alone.encode("one", whole_numbers(0))
    assert torch.equal(feedback.encode("one", whole_numbers(2))[0], alone.encode("one", whole_numbers(2))[0])


def test_the_input_is_left_alone() -> None:
    values = whole_numbers(0)
    Feedback(ThreeLC(1.0)).encode("layer", values)
    assert torch.equal(values, whole_numbers(0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_update_does_not_poison_the_residual(bad: float) -> None:
    feedback, spared = Feedback(ThreeLC(1.5)), Feedback(ThreeLC(1.5))
    for each in (feedback, spared):
        each.encode("layer", whole_numbers(0))
    poisoned = whole_numbers(1)
    poisoned[3] = bad
    assert feedback.encode("layer", poisoned)[1].isnan().all()
    assert torch.equal(
        feedback.encode("layer", whole_numbers(2))[0], spared.encode("layer", whole_numbers(2))[0]
    )


def test_a_sum_beyond_float32_is_a_bad_update() -> None:
    feedback = Feedback(ThreeLC(1.0))
    largest = torch.finfo(torch.float32).max
    feedback.encode("layer", torch.tensor([largest, 0.49 * largest]))
    before = feedback.residual("layer")
    assert feedback.encode("layer", torch.tensor([0.0, largest]))[1].isnan().all()
    assert feedback.residual("layer") is before


def test_a_restored_feedback_goes_on_as_if_nothing_had_happened() -> None:
    feedback = Feedback(ThreeLC(1.75))
    for step in range(3):
        feedback.encode("layer", whole_numbers(step))
    restored = Feedback(ThreeLC(1.75))
    restored.load_state_dict({name: value.clone() for name, value in feedback.state_dict().items()}, CPU)
    for step in range(3, 6):
        assert torch.equal(
            restored.encode("layer", whole_numbers(step))[0], feedback.encode("layer", whole_numbers(step))[0]
        )
