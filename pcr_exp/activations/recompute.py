"""Activation checkpointing: blocks save only their input and run again in backward (Chen et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from pcr_exp.activations.hooks import convolutions
from pcr_exp.errors import ConfigError

# Containers: nn.Sequential only runs its children in order; nn.ModuleList and others define no forward.
_CHAINS = (nn.Sequential.forward, nn.Module.forward)


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return, by name, the outermost modules below `model` that contain at least two convolutions.

    A block has a forward of its own (ResNet's basic block, ShuffleNet's unit). Saving only its input avoids
    saving the tensors inside it. Containers are not blocks; their children are searched.
    """
    found: dict[str, nn.Module] = {}

    def walk(module: nn.Module, name: str) -> None:
        for key, child in module.named_children():
            path = f"{name}.{key}" if name else key
            if type(child).forward not in _CHAINS and len(convolutions(child)) >= 2:
                found[path] = child
            else:
                walk(child, path)

    walk(model, "")
    return found


class RecomputedBlocks:
    """Checkpointing of every block of a model, active in training mode while gradients are recorded."""

    def __init__(self, model: nn.Module) -> None:
        """Wrap the blocks of `model`.

        Raises:
            ConfigError: the model has no blocks.
        """
        self._blocks = list(blocks(model).values())
        if not self._blocks:
            raise ConfigError(
                f"activations=recompute: {type(model).__name__} is a plain chain of layers; wanted blocks of "
                "two or more convolutions, which can be recomputed. Use activations=none, lossless or "
                "error_bounded."
            )
        for block in self._blocks:
            block.forward = partial(_forward, block, block.forward)

    def remove(self) -> None:
        """Unwrap the blocks."""
        for block in self._blocks:
            del block.forward


def _forward(block: nn.Module, forward: Callable[..., Tensor], *inputs: Any, **named: Any) -> Tensor:
    if not (torch.is_grad_enabled() and block.training):
        return forward(*inputs, **named)
    contexts = partial(_contexts, block)
    result: Tensor = checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts, **named)
    return result


def _contexts(block: nn.Module) -> tuple[Any, Any]:
    return nullcontext(), _running_statistics_kept(block)


@contextmanager
def _running_statistics_kept(block: nn.Module) -> Iterator[None]:
    # The second forward sees the same batch, whose statistics must not count twice. With momentum 0 a batch
    # norm normalises as before and changes only its counter, which is restored afterwards.
    norms = [module for module in block.modules() if isinstance(module, _NormBase)]
    momenta = [norm.momentum for norm in norms]
    counters = [None if (n := norm.num_batches_tracked) is None else n.clone() for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum, counter in zip(norms, momenta, counters, strict=True):
            norm.momentum = momentum
            if counter is not None and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.copy_(counter)
