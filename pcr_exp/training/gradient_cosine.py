"""Do images at a scan group pull the model where whole images pull it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from pcr_exp.errors import RunError
from pcr_exp.training.evaluate import LabelledImages
from pcr_exp.training.preserve import preserved
from pcr_exp.training.trainer import Trainer


def gradient_cosines(
    trainer: Trainer,
    batches: Callable[[int], Iterable[LabelledImages]],
    candidates: Iterable[int],
    full_group: int,
    *,
    step: int,
) -> dict[int, float]:
    """Cosine between the gradients of one sample at each candidate and at `full_group`, over all parameters.

    The gradient is that of training (train mode, the same label smoothing and dropout for every group),
    summed over the sample's batches. Nothing of it stays in the trainer.

    Args:
        batches: The same images at a scan group, preprocessed without anything random.
        step: The next update; what is random in the model is drawn for it and those after it.

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
    trainer.optimizer.zero_grad(set_to_none=True)
    for i, batch in enumerate(batches):
        loss = trainer.loss(batch.images, batch.labels, step=step + i)
        # Scaled as in training, where it keeps float16 gradients from vanishing; the cosine does not see it.
        trainer.scaler.scale(loss * len(batch.labels)).backward()
    gradients = [parameter.grad for parameter in trainer.model.parameters() if parameter.grad is not None]
    if not math.isfinite(_dot(gradients, gradients)):
        raise RunError(
            f"the gradient of the scan policy's sample is not finite after step {step}, at scan group "
            f"{group}: training diverged. Rows up to here are kept; lower training.learning_rate or lengthen "
            "training.warmup_epochs."
        )
    return gradients


def _cosine(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """0 where a gradient has no length, and so no direction."""
    lengths = math.sqrt(_dot(one, one)) * math.sqrt(_dot(other, other))
    return _dot(one, other) / lengths if lengths > 0 else 0.0


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    products = [(a.double() * b.double()).sum() for a, b in zip(one, other, strict=True)]
    return float(torch.stack(products).sum())
