"""Convolution inputs, compressed between forward and backward.

Hooks on single saved tensors of autograd's nodes, not `saved_tensors_hooks`: those see every tensor that any
operation saves and cannot tell a convolution's input from a weight, a batch norm's input or pool indices.
Here nothing is touched but what two kinds of node keep:

* a convolution's input, whose errors reach its weight gradient and nothing else: the gradient that goes
  upstream is made of weights alone;
* the result of the ReLU that made this input. It lies in the same storage, so as long as the ReLU keeps it,
  compressing the convolution's copy saves nothing. All that a ReLU's backward asks is which values are above
  zero, and the compressed form knows that exactly.

Whoever else keeps the storage (a batch norm behind a concatenation, a product) keeps it: gradients stay
right, and the layer's tally says that nothing was saved.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from pcr_exp.activations.packed import NonZero, Packed, pack_nonzero
from pcr_exp.errors import RunError


@dataclass(slots=True)
class LayerTally:
    """Sums over all calls of the layer since the update began."""

    raw_bytes: int = 0
    packed_bytes: int = 0
    held_bytes: int = 0
    """The part of `raw_bytes` that was still in memory when backward began: another operation kept
    the same storage, so that compressing it saved nothing."""
    num_values: int = 0
    num_nonzero: int = 0
    batch_size: int = 0
    num_channels: int = 0
    num_gradients: int = 0
    _square_sums: list[Tensor] = field(default_factory=list)
    _abs_sums: list[Tensor] = field(default_factory=list)

    def add_input(self, packed: Packed, *, shared: bool) -> None:
        """Count a packed input; its bytes only if no layer before has counted the same one."""
        shape = packed.nonzero.layout.shape
        self.batch_size = shape[0] if len(shape) == 4 else 1
        self.num_values += shape.numel()
        self.num_nonzero += packed.num_nonzero
        if not shared:
            self.raw_bytes += packed.raw_bytes
            self.packed_bytes += packed.num_bytes

    def add_gradient(self, gradient: Tensor) -> None:
        """Count a loss gradient [N, K, H, W] (or [K, H, W]) at the layer's output, on its device."""
        self.num_channels = gradient.shape[-3]
        self.num_gradients += gradient.numel()
        # The norms are taken in float32: squares of half precision numbers overflow.
        norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)
        self._square_sums.append(norm.double().square())
        self._abs_sums.append(torch.linalg.vector_norm(gradient, 1, dtype=torch.float32).double())

    @property
    def nonzero_share(self) -> float:
        return self.num_nonzero / self.num_values if self.num_values else 0.0

    def gradient_norm(self, loss_scale: float) -> float:
        """Return the root mean square over channels of ||G_k||; G without the loss's scale."""
        square_sum = sum(float(part) for part in self._square_sums)
        return (square_sum / self.num_channels) ** 0.5 / loss_scale if self.num_channels else 0.0

    def mean_abs_gradient(self, loss_scale: float) -> float:
        """Return the mean of |G|."""
        total = sum(float(part) for part in self._abs_sums)
        return total / self.num_gradients / loss_scale if self.num_gradients else 0.0


Pack = Callable[[str, Tensor], Packed]


def convolutions(model: nn.Module) -> dict[str, nn.Conv2d]:
    """Return the 2d convolutions of a model, by their names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}


class ConvInputs:
    """Packs what the convolutions of a model save, while gradients are recorded; evaluation is left alone."""

    def __init__(self, model: nn.Module, pack: Pack) -> None:
        """Hook every convolution of `model`; `pack` is given a layer's name and the tensor it saves."""
        self.tallies: dict[str, LayerTally] = {}
        self.shared_with: dict[str, str] = {}
        """Layers that use the packed input of another one, which it was made for."""
        self.watch_gradients = False
        self._pack = pack
        # An input lives at least as long as its packed form is looked for; the key goes when it does.
        self._packed: Any = WeakTensorKeyDictionary()
        self._unseen: list[tuple[LayerTally, int, weakref.ref[torch.UntypedStorage]]] = []
        self._handles = [
            conv.register_forward_hook(partial(self._after, name))
            for name, conv in convolutions(model).items()
        ]
        self._handles.append(model.register_forward_hook(self._after_all))

    def begin(self, *, watch_gradients: bool) -> None:
        """Begin an update: forget the tallies of the last one."""
        self.tallies = {}
        self.shared_with = {}
        self.watch_gradients = watch_gradients
        self._packed = WeakTensorKeyDictionary()
        self._unseen = []

    def remove(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def _after(self, name: str, conv: nn.Conv2d, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        node = output.grad_fn
        if node is None or not conv.weight.requires_grad:
            return
        if node.name() != "ConvolutionBackward0":
            raise RunError(
                f"activations: the output of {name!r} was made by {node.name()}, wanted "
                "ConvolutionBackward0: another hook has changed it. Use activations=none or recompute with "
                "this model."
            )
        saved: Tensor = node._saved_input  # type: ignore[attr-defined]
        tally = self.tallies.setdefault(name, LayerTally())
        owner, packed = self._known(conv, inputs[0])
        if packed is None:
            packed = self._pack(name, saved)
        tally.add_input(packed, shared=owner is not None)
        if owner is None:
            self._unseen.append((tally, packed.raw_bytes, weakref.ref(saved.untyped_storage())))
            if conv.padding_mode == "zeros":
                self._packed[inputs[0]] = (name, packed, inputs[0]._version)
                _keep_mask(inputs[0], saved, packed)
        elif owner != name:
            self.shared_with[name] = owner
        node._raw_saved_input.register_hooks(_always(packed), Packed.unpack)  # type: ignore[attr-defined]
        if self.watch_gradients:
            node.register_prehook(partial(_watch, tally))

    def _known(self, conv: nn.Conv2d, given: Tensor) -> tuple[str | None, Packed | None]:
        # Two convolutions of one tensor save it once, unless they pad it in different ways or it has changed.
        owner, packed, version = self._packed.get(given, (None, None, None))
        if conv.padding_mode != "zeros" or version != given._version:
            return None, None
        return owner, packed

    def _after_all(self, model: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002 - of torch
        # The gradient of the output comes first of all gradients: whatever the forward pass needed for itself
        # is gone by then, and what backward needs is still there.
        for tensor in tree_leaves(output):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(self._see_what_is_held)
                return

    def _see_what_is_held(self, gradient: Tensor) -> None:  # noqa: ARG002 - of torch
        for tally, num_bytes, storage in self._unseen:
            if storage() is not None:
                tally.held_bytes += num_bytes
        self._unseen = []


def _keep_mask(given: Tensor, saved: Tensor, packed: Packed) -> None:
    relu = given.grad_fn
    if relu is None or relu.name() != "ReluBackward0":
        return
    # Under autocast the convolution saves a cast of what the ReLU made, in which small values may be 0.
    same = saved.data_ptr() == given.data_ptr() and saved.dtype == given.dtype
    mask: NonZero = packed.nonzero if same else pack_nonzero(given)
    relu._raw_saved_result.register_hooks(_always(mask), NonZero.unpack)  # type: ignore[attr-defined]


def _watch(tally: LayerTally, gradients: tuple[Tensor | None, ...]) -> None:
    for gradient in gradients:
        if gradient is not None:
            tally.add_gradient(gradient)


def _always(value: object) -> Callable[[Tensor], object]:
    # A pack hook that has nothing left to do, and keeps no hold of the tensor.
    return lambda _: value
