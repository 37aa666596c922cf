"""What a model is worth on data it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOP_K = 5


class LabelledImages(Protocol):
    """What evaluation needs of a batch."""

    @property
    def images(self) -> Tensor:
        """uint8 [B, H, W, 3]."""

    @property
    def labels(self) -> Tensor:
        """int64 [B]."""


def evaluate(
    model: nn.Module, forward: Callable[[Tensor], Tensor], batches: Iterable[LabelledImages]
) -> dict[str, float | int | None]:
    """Score the model, in eval mode; it leaves in the mode it came in.

    Args:
        model: The model that `forward` runs.
        forward: uint8 [B, H, W, 3] -> float32 logits [B, classes].
        batches: Each image once; the last batch may be short.

    Returns:
        `val_loss`: mean cross-entropy per image, without label smoothing; may be nan or inf.
        `val_top1`, `val_top5`: shares of images, 0..1; `val_top5` is None for fewer than 5 classes.
        `num_val`: images scored.

    Raises:
        ValueError: there are no images.
    """
    was_training = model.training
    model.eval()
    total_loss, num_top1, num_top5, num_val, num_classes = 0.0, 0, 0, 0, 0
    try:
        with torch.inference_mode():
            for batch in batches:
                logits = forward(batch.images)
                labels = batch.labels.to(logits.device, non_blocking=True)
                num_classes = logits.shape[1]
                ranked = logits.topk(min(TOP_K, num_classes), dim=1).indices
                hits = ranked == labels[:, None]
                total_loss += F.cross_entropy(logits, labels, reduction="sum").item()
                num_top1 += int(hits[:, 0].sum())
                num_top5 += int(hits.sum())
                num_val += len(labels)
    finally:
        model.train(was_training)
    if num_val == 0:
        raise ValueError("nothing to evaluate: the validation split gave no images.")
    return {
        "val_loss": total_loss / num_val,
        "val_top1": num_top1 / num_val,
        "val_top5": num_top5 / num_val if num_classes >= TOP_K else None,
        "num_val": num_val,
    }
