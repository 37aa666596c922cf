"""A network whose normalisation is folded into its convolutions: equal outputs, fewer passes over memory.

A batch normalisation that has stopped learning is a factor and a shift per channel, which the convolution
before it can have in its weights (Jacob et al. 2018, section 3.2).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

_SAME = 1e-3
"""Of the largest output: what folding may change by rounding."""


@torch.no_grad()
def folded(model: nn.Module, example: Tensor) -> nn.Module:
    """Return a copy with every normalisation that follows a convolution folded into it.

    Which follows which is seen as the example passes. Where the copy's outputs are not the model's, because a
    convolution's output is used elsewhere too, the model itself is returned.

    Args:
        model: In evaluation mode.
        example: An input of it.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    pairs = _pairs(model, example)
    copied = copy.deepcopy(model)
    for conv_name, norm_name in pairs:
        conv, norm = copied.get_submodule(conv_name), copied.get_submodule(norm_name)
        assert isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)
        _fold(conv, norm)
        parent, _, name = norm_name.rpartition(".")
        setattr(copied.get_submodule(parent), name, nn.Identity())
    wanted, found = model(example), copied(example)
    close = torch.allclose(found, wanted, rtol=0, atol=_SAME * float(wanted.abs().max()))
    return copied if close else model


def _pairs(model: nn.Module, example: Tensor) -> list[tuple[str, str]]:
    """(convolution, normalisation) by name, of those whose input is that convolution's output."""
    made: dict[int, tuple[str, Tensor]] = {}  # with the tensors, so that no two have one id
    pairs: list[tuple[str, str]] = []

    def note(name: str) -> object:
        return lambda _module, _inputs, output: made.update({id(output): (name, output)})

    def match(name: str) -> object:
        def seen(module: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
            source = made.get(id(inputs[0]))
            if source is not None and module.track_running_stats:
                pairs.append((source[0], name))

        return seen

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            hooks.append(module.register_forward_hook(note(name)))  # type: ignore[arg-type]
        elif isinstance(module, nn.BatchNorm2d):
            hooks.append(module.register_forward_pre_hook(match(name)))  # type: ignore[arg-type]
    try:
        model(example)
    finally:
        for hook in hooks:
            hook.remove()
    once = {conv for conv, _ in pairs if sum(other == conv for other, _ in pairs) == 1}
    return [(conv, norm) for conv, norm in pairs if conv in once]


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    assert norm.running_mean is not None and norm.running_var is not None
    factor = torch.rsqrt(norm.running_var + norm.eps)
    shift = -norm.running_mean * factor if conv.bias is None else (conv.bias - norm.running_mean) * factor
    if norm.affine:
        factor, shift = factor * norm.weight, shift * norm.weight + norm.bias
    conv.weight = nn.Parameter(conv.weight * factor[:, None, None, None])
    conv.bias = nn.Parameter(shift)
