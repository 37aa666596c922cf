"""What a model is worth on data it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pcr_exp.training.task import Tally, Task, joined


class LabelledImages(Protocol):
    """What evaluation needs of a batch."""

    @property
    def images(self) -> Tensor:
        """uint8 [B, H, W, 3]."""

    @property
    def labels(self) -> Tensor:
        """int64 [B]."""


def evaluate(
    model: nn.Module, forward: Callable[[Tensor], Tensor], task: Task, batches: Iterable[LabelledImages]
) -> dict[str, Any]:
    """Score the model, in eval mode; it leaves in the mode it came in.

    Args:
        model: The model that `forward` runs.
        forward: uint8 [B, H, W, 3] -> float32 outputs, such as logits [B, classes].
        task: Says what is counted.
        batches: Each image once; the last batch may be short.

    Returns:
        The task's metrics, of which `val_loss` may be nan or inf; and `num_val`, the images scored.

    Raises:
        ValueError: there are no images.
        RunError: a metric is not defined for these images.
    """
    tallies: list[Tally] = []
    num_val = 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in batches:
                outputs = forward(batch.images)
                target = task.target(batch.labels.to(outputs.device, non_blocking=True))
                tallies.append(task.tally(outputs, target))
                num_val += len(batch.labels)
    finally:
        model.train(was_training)
    if num_val == 0:
        raise ValueError("nothing to evaluate: the validation split gave no images.")
    return {**task.metrics(joined(tallies)), "num_val": num_val}
