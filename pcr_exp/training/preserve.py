"""Trying something with a model and its optimiser, and being able to go back, to the last bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pcr_exp.training.trainer import Trainer


@contextmanager
def preserved(trainer: Trainer) -> Iterator[Callable[[], None]]:
    """Within, the trainer may be used at will; afterwards all is as it was. Yields a way to go back early.

    That is: parameters, buffers (batch-norm statistics), gradients, train or eval mode of every module, the
    optimiser, the loss scaler, what is known of activations, compressed or not, and the random states of
    torch on all devices, numpy and Python. Tensors keep their place in memory. Takes the memory of a second
    model and optimiser. Of several processes, each tries by itself, and sends nothing.
    """
    model, optimizer, scaler = trainer.model, trainer.optimizer, trainer.scaler
    tensors = [*model.parameters(), *model.buffers()]
    values = [tensor.detach().clone() for tensor in tensors]
    gradients = [parameter.grad for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    scaler_state = copy.deepcopy(scaler.state_dict())
    activations_state = copy.deepcopy(trainer.activations.state_dict())
    kept_state = trainer.kept.state_dict()
    random_states = _random_states()

    def restore() -> None:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        for module, mode in modes:
            module.training = mode
        # A copy: the optimiser keeps the tensors that it is given, and goes on to change them.
        optimizer.load_state_dict(copy.deepcopy(optimizer_state))
        scaler.load_state_dict(scaler_state)
        trainer.activations.load_state_dict(copy.deepcopy(activations_state))
        trainer.kept.load_state_dict(kept_state)
        _set_random_states(random_states)

    # Nothing shall be added to the gradients that are kept.
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
