"""Evaluation of a model on images that it was not trained on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pcr_exp.training.task import PER_IMAGE, PROBABILITIES, Tally, Task, joined

log = logging.getLogger(__name__)


class LabelledImages(Protocol):
    """Interface of a batch for evaluation."""

    @property
    def images(self) -> Tensor:
        """uint8 [B, H, W, 3]."""

    @property
    def labels(self) -> Tensor:
        """int64 [B]."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One process's result on its share of the images."""

    tallies: list[Tally]
    """One per batch, in order."""
    num_images: int
    num_replaced: int = 0
    """Images that stood in for damaged ones (`loader.on_corrupt=replace`)."""


def evaluate(
    model: nn.Module, forward: Callable[[Tensor], Tensor], task: Task, batches: Iterable[LabelledImages]
) -> dict[str, Any]:
    """Score the model on all images; see `tally_batches` and `scores_of`."""
    return scores_of([tally_batches(model, forward, task, batches)], task)


def scores_of(shares: Sequence[Evaluated], task: Task) -> dict[str, Any]:
    """Combine the shares of all processes into metrics.

    Sums are added batch by batch in the order of the shares. If each process had consecutive batches, this is
    the order of the images, and the metrics equal those of a single process to the last bit.

    Returns:
        The task's metrics (`val_loss` may be nan or inf), and `num_val`, the number of images scored.

    Raises:
        ValueError: there are no images.
        RunError: a metric is not defined for these images.
    """
    num_val = sum(share.num_images for share in shares)
    if num_val == 0:
        raise ValueError("nothing to evaluate: the validation split gave no images.")
    tallies = [tally for share in shares for tally in share.tallies]
    return {**task.metrics(joined(tallies)), "num_val": num_val}


def per_image(shares: Sequence[Evaluated]) -> dict[str, NDArray[Any]] | None:
    """Return PER_IMAGE of all images in order, each [N], and PROBABILITIES if the task records them.

    None if the task does not record PER_IMAGE, or if images were replaced, because it is unknown which.
    """
    tallies = [tally for share in shares for tally in share.tallies]
    if not all(tally.values.keys() >= set(PER_IMAGE) for tally in tallies):
        return None
    if any(share.num_replaced for share in shares):
        log.warning("predictions of this evaluation are not saved: damaged images were replaced by others")
        return None
    names = [*PER_IMAGE, *(name for name in (PROBABILITIES,) if name in tallies[0].values)]
    return {name: np.concatenate([tally.values[name] for tally in tallies]) for name in names}


def tally_batches(
    model: nn.Module, forward: Callable[[Tensor], Tensor], task: Task, batches: Iterable[LabelledImages]
) -> Evaluated:
    """Run the model in eval mode and tally each batch; the model's mode is restored afterwards.

    Args:
        model: The model that `forward` runs.
        forward: uint8 [B, H, W, 3] -> float32 outputs, such as logits [B, classes].
        task: Makes the tallies.
        batches: Each image once; the last batch may be short.
    """
    tallies: list[Tally] = []
    num_val = num_replaced = 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in batches:
                outputs = forward(batch.images)
                target = task.target(batch.labels.to(outputs.device, non_blocking=True))
                tallies.append(task.tally(outputs, target))
                num_val += len(batch.labels)
                num_replaced += getattr(batch, "num_replaced", 0)
    finally:
        model.train(was_training)
    return Evaluated(tallies, num_val, num_replaced)


def has_running_statistics(model: nn.Module) -> bool:
    """Return whether the model has BatchNorm layers with running statistics from training."""
    return any(_renewable(model))


@contextmanager
def renewed_statistics(
    model: nn.Module, forward: Callable[[Tensor], Tensor], batches: Iterable[LabelledImages]
) -> Iterator[None]:
    """Set BatchNorm's running statistics to the plain mean over these batches; restore them at the end.

    A network trained on the first scans has their means and variances. Other images have different ones,
    which a pass over some of them gives without training ("precise BatchNorm", Wu and Johnson 2021).

    Args:
        model: The model that `forward` runs.
        forward: uint8 [B, H, W, 3] -> outputs, which are ignored.
        batches: Training images, enough for stable statistics.
    """
    layers = list(_renewable(model))
    before = [{name: buffer.clone() for name, buffer in layer.named_buffers()} for layer in layers]
    momenta, was_training = [layer.momentum for layer in layers], model.training
    try:
        model.eval()  # except for these layers: dropout would draw from the generator that training uses
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
        with torch.no_grad():
            for batch in batches:
                forward(batch.images)
        model.eval()
        yield
    finally:
        for layer, momentum, buffers in zip(layers, momenta, before, strict=True):
            layer.momentum = momentum
            for name, buffer in layer.named_buffers():
                buffer.copy_(buffers[name])
        model.train(was_training)


def _renewable(model: nn.Module) -> Iterator[_BatchNorm]:
    return (layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats)
