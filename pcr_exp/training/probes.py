"""Probes of scan policies between epochs; each leaves the model unchanged."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcr_exp.errors import RunError
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import Probe, ScanPolicy
from pcr_exp.training.evaluate import LabelledImages
from pcr_exp.training.report import Reporter, Row
from pcr_exp.training.trainer import Trainer, learning_rate


@contextmanager
def preserved(trainer: Trainer) -> Iterator[Callable[[], None]]:
    """Save the trainer's state and restore it at the end. Yields a function that restores it early.

    The state covers parameters, buffers (batch-norm statistics), gradients, train or eval mode of every
    module, the optimiser, the loss scaler, the state and statistics of saved activations, and the random
    states of torch on all devices, numpy and Python. Tensors keep their place in memory. A second model and
    optimiser are held in memory. With several processes, each uses its trainer alone and sends nothing.
    """
    model, optimizer, scaler = trainer.model, trainer.optimizer, trainer.scaler
    tensors = [*model.parameters(), *model.buffers()]
    values = [tensor.detach().clone() for tensor in tensors]
    gradients = [parameter.grad for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    scaler_state = copy.deepcopy(scaler.state_dict())
    activations_state = copy.deepcopy(trainer.activations.state_dict())
    saved_bytes_state = trainer.saved_bytes.state_dict()
    random_states = _random_states()

    def restore() -> None:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        for module, mode in modes:
            module.training = mode
        # A copy, because the optimiser keeps the given tensors and changes them later.
        optimizer.load_state_dict(copy.deepcopy(optimizer_state))
        scaler.load_state_dict(scaler_state)
        trainer.activations.load_state_dict(copy.deepcopy(activations_state))
        trainer.saved_bytes.load_state_dict(saved_bytes_state)
        _set_random_states(random_states)

    # Keeps backward passes from adding to the saved gradients.
    optimizer.zero_grad(set_to_none=True)
    try:
        with trainer.alone():
            yield restore
    finally:
        restore()


def _random_states() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": np.random.get_state(),  # noqa: NPY002
        "python": random.getstate(),
    }


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])


def gradient_cosines(
    trainer: Trainer,
    batches: Callable[[int], Iterable[LabelledImages]],
    candidates: Iterable[int],
    full_group: int,
    *,
    step: int,
) -> dict[int, float]:
    """Return the cosine, over all parameters, between a sample's gradients at a candidate and `full_group`.

    Gradients are computed as in training (train mode, the same label smoothing and dropout for every group)
    and summed over the sample's batches. The trainer is left unchanged.

    Args:
        batches: Gives the same images at a scan group, with deterministic preprocessing.
        step: The next update; the model's random numbers are drawn for it and the updates after it.

    Raises:
        RunError: a loss or a gradient is not finite.
    """
    with preserved(trainer):
        whole = _gradient(trainer, batches(full_group), full_group, step)
        return {
            group: 1.0
            if group == full_group
            else _cosine(whole, _gradient(trainer, batches(group), group, step))
            for group in candidates
        }


def _gradient(trainer: Trainer, batches: Iterable[LabelledImages], group: int, step: int) -> list[Tensor]:
    """Return the gradient of the sample's loss; in float16, of its mean loss times a scale, as in training.

    Where float16 overflows, the scale is halved, as training halves its own. Cosines do not depend on it.
    """
    batches = list(batches)
    least = 1 / sum(len(batch.labels) for batch in batches) if trainer.scaler.is_enabled() else 1.0
    scale = least * trainer.scaler.get_scale()
    while True:
        trainer.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(batches):
            loss = trainer.loss(batch.images, batch.labels, step=step + i)
            (loss * len(batch.labels) * scale).backward()
        gradients = [parameter.grad for parameter in trainer.model.parameters() if parameter.grad is not None]
        is_finite = math.isfinite(_dot(gradients, gradients))
        if is_finite or scale <= least:
            break
        scale /= 2
    if not is_finite:
        raise RunError(
            f"the gradient of the scan policy's sample is not finite after step {step}, at scan group "
            f"{group}: training diverged. Rows up to here are kept; lower training.learning_rate or lengthen "
            "training.warmup_epochs."
        )
    return gradients


def _cosine(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return the cosine; 0 if a gradient has length 0, and so no direction."""
    lengths = math.sqrt(_dot(one, one)) * math.sqrt(_dot(other, other))
    return _dot(one, other) / lengths if lengths > 0 else 0.0


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    products = [(a.double() * b.double()).sum() for a, b in zip(one, other, strict=True)]
    return float(torch.stack(products).sum())


def trial_losses(
    trainer: Trainer,
    batches: Callable[[int], AbstractContextManager[Iterable[Batch]]],
    candidates: Iterable[int],
    *,
    step: int,
    steps_per_epoch: int,
    evaluate: Callable[[], float] | None = None,
) -> dict[int, float]:
    """Return each candidate's loss: the one that `evaluate` gives after its trial.

    Without `evaluate`, it is the mean training loss over the second half of the trial's updates. The trainer
    is restored when this returns or fails.

    Args:
        batches: Opens a trial's batches, the same images at each scan group.
        step: The run's next update; a trial's learning rates are those from it on.

    Raises:
        RunError: a loss is not finite.
    """
    losses: dict[int, float] = {}
    with preserved(trainer) as restore:
        for group in candidates:
            seen: list[float] = []
            with batches(group) as stream:
                for batch in stream:
                    i = step + len(seen)
                    loss = trainer.update(
                        batch.images,
                        batch.labels,
                        step=i,
                        learning_rate=learning_rate(trainer.config, i, steps_per_epoch),
                        slot=batch.slot,
                        part=batch.part,
                        num_parts=batch.num_parts,
                    )
                    if batch.completes_update:
                        seen.append(_finite(loss, "training loss", step, len(seen) + 1, group))
            if evaluate is None:
                losses[group] = sum(seen[len(seen) // 2 :]) / (len(seen) - len(seen) // 2)
            else:
                losses[group] = _finite(evaluate(), "validation loss", step, len(seen), group)
            restore()
    return losses


def _finite(loss: float, what: str, step: int, count: int, group: int) -> float:
    if not math.isfinite(loss):
        raise RunError(
            f"the {what} is {loss} after step {step}, at update {count} of the scan policy's trial of scan "
            f"group {group}: training diverged. Rows up to here are kept; lower training.learning_rate or "
            "lengthen training.warmup_epochs."
        )
    return loss


RunProbe = Callable[[Probe], Mapping[int, float]]
"""Runs a policy's probe: returns a score for each candidate and leaves the model unchanged."""


def decisions(
    policy: ScanPolicy,
    probe: RunProbe,
    reporter: Reporter,
    *,
    epochs: int,
    probing: Callable[[], AbstractContextManager[None]],
) -> Iterator[Row]:
    """Run the probe that the policy requests at this point, if any, and yield a row if it decided something.

    Args:
        epochs: Epochs of the whole run; after the last there is nothing to decide.
        probing: Entered around a probe; it pauses the loader and runs the `probe` clock.
    """
    progress = reporter.progress
    between_epochs = progress.batch == 0 and progress.epoch < epochs
    wanted = policy.wanted_probe(progress.epoch) if between_epochs else None
    if wanted is not None:
        with probing():
            bytes_before = reporter.bytes_read()
            scores = probe(wanted)
            progress.probe_bytes += reporter.bytes_read() - bytes_before  # the probe's own
        policy.decide(scores)
    decision = policy.take_decision()
    if decision is not None and progress.epoch < epochs:
        yield reporter.policy_row(decision)
