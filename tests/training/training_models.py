"""A model with every kind of state that an update changes, and helpers to compare trainers."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.training.trainer import Trainer


class Running(nn.Module):
    """Counts its calls in training in a non-persistent buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return x


def make_trainer(
    steps: int = 3, dropout: float = 0.5, activations: ActivationsConfig | None = None, **changes: Any
) -> Trainer:
    """Return a trainer after some updates, with momentum, batch-norm statistics and gradients to lose."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        Running(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(144, 5),
    )
    fields = {"epochs": 9, "batch_size": 4, "image_size": 8, "eval_image_size": 8, "learning_rate": 0.1}
    config = TrainingConfig(**{**fields, **changes})
    trainer = Trainer(model, config, device=torch.device("cpu"), seed=0, activations=activations)
    for step in range(steps):
        trainer.update(*batch(step), step=step, learning_rate=0.05)
    return trainer


def batch(step: int, noise: int = 0) -> tuple[Tensor, Tensor]:
    """Return four images of five classes, brighter with the class; `noise` changes the pixels only."""
    labels = torch.randint(5, (4,), generator=torch.Generator().manual_seed(step))
    pixels = torch.randint(60, (4, 8, 8, 3), generator=torch.Generator().manual_seed(1000 * noise + step))
    return (pixels + 40 * labels[:, None, None, None]).to(torch.uint8), labels


def everything(trainer: Trainer) -> list[Any]:
    """Return all state in which a probe could leave traces, as bytes and plain values."""
    model = trainer.model
    tensors = [*model.parameters(), *model.buffers()]
    gradients = [p.grad for p in model.parameters()]
    momenta = [state.get("momentum_buffer") for state in trainer.optimizer.state.values()]
    return [
        *(None if t is None else t.detach().numpy().tobytes() for t in (*tensors, *gradients, *momenta)),
        [module.training for module in model.modules()],
        [group["lr"] for group in trainer.optimizer.param_groups],
        torch.get_rng_state().numpy().tobytes(),
        # The key and the position in it. A draw within the key's 624 words moves only the position.
        [part.tobytes() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],  # noqa: NPY002
        random.getstate(),
        trainer.saved_bytes.state_dict(),
        copy.deepcopy(trainer.activations.state_dict()),
    ]


def next_losses(trainer: Trainer, first: int = 3, count: int = 20) -> list[float]:
    """Return the exact losses of the next updates."""
    steps = range(first, first + count)
    return [trainer.update(*batch(step), step=step, learning_rate=0.05) for step in steps]
