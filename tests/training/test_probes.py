"""Probes of a model: their results, and that they leave no trace, to the last bit."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from training_models import batch, everything, make_trainer, next_losses

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.errors import RunError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.fixed_sample import SampleBatch
from pcr_exp.training.probes import gradient_cosines, preserved, trial_losses
from pcr_exp.training.trainer import Trainer, learning_rate

STEPS_PER_EPOCH = 10


def at_group(group: int) -> Iterator[SampleBatch]:
    """Yield three batches; lower groups keep fewer bits of each pixel."""
    for step in range(50, 53):
        images, labels = batch(step)
        coarse = 2 ** (10 - group) if group < 10 else 1
        yield SampleBatch(images // coarse * coarse, labels)


def in_training(batches: Iterator[SampleBatch], group: int) -> Iterator[Batch]:
    """Convert the batches to those that training gets."""
    return (Batch(batch.images, batch.labels, 0, 0, 1, 0, 0, group) for batch in batches)


@contextmanager
def opened(group: int) -> Iterator[Iterator[Batch]]:
    yield in_training(at_group(group), group)


def cosines(trainer: Trainer, **given: Any) -> dict[int, float]:
    return gradient_cosines(trainer, **({"batches": at_group, "step": 3} | given), **CANDIDATES)


CANDIDATES = {"candidates": (3, 5, 8, 10), "full_group": 10}


def trials(trainer: Trainer, **given: Any) -> dict[int, float]:
    settings = {"batches": opened, "candidates": (3, 10), "step": 3, "steps_per_epoch": STEPS_PER_EPOCH}
    return trial_losses(trainer, **(settings | given))


PROBES = {"cosine": cosines, "trial": trials}


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("channels_last", [True, False])
def test_a_probe_leaves_no_trace_and_the_next_20_losses_are_the_same(
    probe: str, steps: int, channels_last: bool
) -> None:
    undisturbed = make_trainer(steps, channels_last=channels_last)
    trainer = make_trainer(steps, channels_last=channels_last)
    before = everything(trainer)
    strides = [p.stride() for p in trainer.model.parameters()]
    assert before == everything(undisturbed)
    PROBES[probe](trainer)
    assert everything(trainer) == before
    assert [p.stride() for p in trainer.model.parameters()] == strides
    assert next_losses(trainer, steps) == next_losses(undisturbed, steps)
    assert everything(trainer) == everything(undisturbed)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_leaves_no_trace_in_the_bounds_of_compressed_activations(probe: str) -> None:
    """Every update adapts these bounds, but no probe does."""
    keeping = QuantiseConfig(interval=1)
    undisturbed, trainer = make_trainer(activations=keeping), make_trainer(activations=keeping)
    before = everything(trainer)
    assert before[-1]["history"]
    PROBES[probe](trainer)
    assert everything(trainer) == before
    assert next_losses(trainer) == next_losses(undisturbed)
    assert everything(trainer) == everything(undisturbed)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_that_fails_leaves_no_trace_either(probe: str) -> None:
    def failing(group: int) -> Iterator[SampleBatch]:
        yield from at_group(group)
        raise OSError("the disk is gone")

    @contextmanager
    def failing_trial(group: int) -> Iterator[Iterator[Batch]]:
        yield in_training(failing(group), group)

    trainer = make_trainer()
    before = everything(trainer)
    with pytest.raises(OSError, match="the disk is gone"):
        PROBES[probe](trainer, batches=failing if probe == "cosine" else failing_trial)
    assert everything(trainer) == before


def test_everything_would_notice() -> None:
    """`everything`, which these tests compare, reflects every kind of change."""

    def mode(trainer: Trainer) -> None:
        trainer.model[1].eval()  # type: ignore[index]

    def statistics(trainer: Trainer) -> None:
        trainer.model[1].running_mean += 1e-6  # type: ignore[index, operator]

    def gradient(trainer: Trainer) -> None:
        trainer.model[0].weight.grad = None  # type: ignore[index]

    for change in (
        mode,
        statistics,
        gradient,
        lambda _: torch.rand(1),
        lambda _: np.random.rand(),  # noqa: NPY002
        lambda _: random.random(),
        lambda trainer: trainer.update(*batch(9), step=9, learning_rate=0.05),
    ):
        trainer = make_trainer()
        np.random.rand()  # noqa: NPY002  (past the first word, where a draw makes no new key)
        before = everything(trainer)
        change(trainer)
        assert everything(trainer) != before


def test_random_states_go_back() -> None:
    trainer = make_trainer()
    before = everything(trainer)
    with preserved(trainer):
        torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    assert everything(trainer) == before


def test_cosines_against_autograd() -> None:
    trainer = make_trainer(dropout=0.0, label_smoothing=0.1)
    found = cosines(trainer)

    def gradient(group: int) -> Tensor:
        trainer.model.train()
        trainer.model.zero_grad()
        for sample in at_group(group):
            logits = trainer.forward(sample.images)
            torch.nn.functional.cross_entropy(
                logits, sample.labels, label_smoothing=0.1, reduction="sum"
            ).backward()
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])  # type: ignore[union-attr]

    whole = gradient(10)
    for group in (3, 5, 8):
        wanted = torch.nn.functional.cosine_similarity(whole, gradient(group), dim=0)
        assert found[group] == pytest.approx(wanted.item(), rel=1e-4)
    assert found[10] == 1
    assert found[3] < found[8] < 1


def test_dropout_is_drawn_alike_for_all_groups() -> None:
    trainer = make_trainer(dropout=0.5)
    same = gradient_cosines(trainer, lambda _: at_group(10), (1,), 10, step=3)
    assert same[1] == pytest.approx(1, abs=1e-9)


def test_a_gradient_that_overflows_float16_is_scaled_down() -> None:
    """As on a GPU without bfloat16, with a loss scale at which training would skip some updates."""
    trainer = make_trainer()
    wanted = cosines(trainer)
    trainer.amp_dtype = torch.float16
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    found = cosines(trainer)
    assert found == {group: pytest.approx(cosine, abs=0.01) for group, cosine in wanted.items()}
    with torch.no_grad():
        trainer.model[6].bias[0] = math.nan  # type: ignore[index, union-attr, operator]
    with pytest.raises(RunError, match="the gradient of the scan policy's sample is not finite"):
        cosines(trainer)


def test_a_gradient_without_length_has_no_direction() -> None:
    trainer = make_trainer()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.requires_grad_(False)
        trainer.model[6].bias.requires_grad_(True)  # type: ignore[index, union-attr]
        trainer.model[6].bias.fill_(0)  # type: ignore[index, union-attr, operator]
        trainer.model[6].bias[0] = 1e4  # type: ignore[index, union-attr, operator]

    def only_class_0(_: int) -> Iterator[SampleBatch]:
        yield SampleBatch(batch(0)[0], torch.zeros(4, dtype=torch.int64))

    assert gradient_cosines(trainer, only_class_0, (1,), 10, step=3) == {1: 0.0}


def test_a_trial_trains_as_the_run_would() -> None:
    undisturbed, trainer = (make_trainer(schedule="cosine", epochs=4) for _ in range(2))
    rates = [learning_rate(trainer.config, step, STEPS_PER_EPOCH) for step in (3, 4, 5)]
    assert rates[0] > rates[1] > rates[2] > 0
    samples = list(at_group(10))
    losses = [
        undisturbed.update(sample.images, sample.labels, step=3 + i, learning_rate=rates[i])
        for i, sample in enumerate(samples)
    ]
    found = trials(trainer)
    assert found[10] == pytest.approx(sum(losses[1:]) / 2, rel=1e-12), "the second half, rounded up"
    assert found[3] != found[10]
    again = trials(trainer, candidates=(10, 3))
    assert again == found, "candidates do not see each other"


def test_a_trial_can_be_judged_on_what_it_did_to_the_model() -> None:
    trainer = make_trainer()

    def weight() -> float:
        return trainer.model[6].weight.abs().sum().item()  # type: ignore[index, union-attr, operator]

    before = weight()
    judged = trials(trainer, evaluate=weight)
    assert len({before, *judged.values()}) == 3
    assert weight() == before


def poison(trainer: Trainer) -> None:
    with torch.no_grad():
        trainer.model[6].bias[0] = math.nan  # type: ignore[index, union-attr, operator]


def test_a_loss_that_is_not_finite_names_step_and_group() -> None:
    trainer = make_trainer()
    with pytest.raises(RunError, match=r"validation loss is inf after step 3, at update 3 .* scan group 3: "):
        trials(trainer, evaluate=lambda: math.inf)
    poison(trainer)
    before = everything(trainer)
    with pytest.raises(RunError, match=r"training loss is nan after step 3, at update 1 .* scan group 3: "):
        trials(trainer)
    with pytest.raises(RunError, match=r"gradient .* is not finite after step 3, at scan group 10: "):
        cosines(trainer)
    assert everything(trainer) == before
