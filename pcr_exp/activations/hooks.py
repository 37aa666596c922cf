"""Compression of convolution inputs between forward and backward.

The hooks are on individual saved tensors of autograd nodes. `saved_tensors_hooks` sees every tensor that any
operation saves and cannot tell a convolution's input from a weight, a batch norm's input or pooling indices.
Only two kinds of saved tensor are replaced:

* A convolution's input. Its errors affect only the weight gradient, since the gradient sent upstream is
  computed from the weights and not from the input.
* The result of the ReLU that produced this input. It shares the input's storage, so compression frees nothing
  while the ReLU saves it. A ReLU's backward only needs to know which values are above zero, and the
  compressed form stores that exactly.

If another operation saves the same storage (a batch norm after a concatenation, a product), it stays in
memory. Gradients are still correct, and the layer's tally reports that nothing was saved.
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
    """Sums over all calls of the layer since the micro-batch began."""

    raw_bytes: int = 0
    packed_bytes: int = 0
    held_bytes: int = 0
    """The part of `raw_bytes` still in memory when backward began. Another operation saved the same
    storage, so compression freed nothing."""
    num_values: int = 0
    num_nonzero: int = 0
    batch_size: int = 0
    num_channels: int = 0
    num_gradients: int = 0
    _square_sums: list[Tensor] = field(default_factory=list)
    _abs_sums: list[Tensor] = field(default_factory=list)

    def add_input(self, packed: Packed, *, shared: bool) -> None:
        """Count a packed input, and its bytes unless it is `shared` with an earlier call."""
        shape = packed.nonzero.layout.shape
        self.batch_size = shape[0] if len(shape) == 4 else 1
        self.num_values += shape.numel()
        self.num_nonzero += packed.num_nonzero
        if not shared:
            self.raw_bytes += packed.raw_bytes
            self.packed_bytes += packed.num_bytes

    def add_gradient(self, gradient: Tensor) -> None:
        """Add a loss gradient [N, K, H, W] (or [K, H, W]) at the layer's output; sums stay on its device."""
        self.num_channels = gradient.shape[-3]
        self.num_gradients += gradient.numel()
        # Compute norms in float32, since squares of half-precision numbers overflow.
        norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)
        self._square_sums.append(norm.double().square())
        self._abs_sums.append(torch.linalg.vector_norm(gradient, 1, dtype=torch.float32).double())

    @property
    def nonzero_share(self) -> float:
        return self.num_nonzero / self.num_values if self.num_values else 0.0

    def gradient_norm(self, loss_scale: float) -> float:
        """Return the root mean square of ||G_k|| over channels, for the gradient G without loss scaling."""
        square_sum = sum(float(part) for part in self._square_sums)
        return (square_sum / self.num_channels) ** 0.5 / loss_scale if self.num_channels else 0.0

    def mean_abs_gradient(self, loss_scale: float) -> float:
        """Return the mean of |G|, without loss scaling."""
        total = sum(float(part) for part in self._abs_sums)
        return total / self.num_gradients / loss_scale if self.num_gradients else 0.0


Pack = Callable[[str, Tensor], Packed]


def convolutions(model: nn.Module) -> dict[str, nn.Conv2d]:
    """Return the 2d convolutions of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}


class ConvInputs:
    """Hooks that pack what a model's convolutions save for backward; evaluation is unaffected."""

    def __init__(self, model: nn.Module, pack: Pack) -> None:
        """Hook every convolution of `model`; `pack` receives a layer's name and the tensor that it saves."""
        self.tallies: dict[str, LayerTally] = {}
        self.shared_with: dict[str, str] = {}
        """By layer, the other layer whose packed input it uses."""
        self.watch_gradients = False
        self._pack = pack
        # An input outlives every lookup of its packed form; its entry disappears with it.
        self._packed: Any = WeakTensorKeyDictionary()
        self._unseen: list[tuple[LayerTally, int, weakref.ref[torch.UntypedStorage]]] = []
        self._handles = [
            conv.register_forward_hook(partial(self._after, name))
            for name, conv in convolutions(model).items()
        ]
        self._handles.append(model.register_forward_hook(self._after_all))

    def begin(self, *, watch_gradients: bool) -> None:
        """Begin a micro-batch and discard the tallies of the previous one."""
        self.tallies = {}
        self.shared_with = {}
        self.watch_gradients = watch_gradients
        self._packed = WeakTensorKeyDictionary()
        self._unseen = []

    def remove(self) -> None:
        """Remove the hooks from the model."""
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
            if _saves_its_input(conv):
                self._packed[inputs[0]] = (name, packed, inputs[0]._version)
                _keep_mask(inputs[0], saved, packed)
        elif owner != name:
            self.shared_with[name] = owner
        node._raw_saved_input.register_hooks(_always(packed), Packed.unpack)  # type: ignore[attr-defined]
        if self.watch_gradients:
            node.register_prehook(partial(_watch, tally))

    def _known(self, conv: nn.Conv2d, given: Tensor) -> tuple[str | None, Packed | None]:
        # Convolutions of one tensor share its packed copy if they save it as it is, and nobody modified it.
        owner, packed, version = self._packed.get(given, (None, None, None))
        if not _saves_its_input(conv) or version != given._version:
            return None, None
        return owner, packed

    def _after_all(self, model: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002 - of torch
        # The gradient of the output is computed before all others. By then the temporaries of the forward
        # pass are freed, and everything that backward needs is still in memory.
        for tensor in tree_leaves(output):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(self._see_what_is_held)
                return

    def _see_what_is_held(self, gradient: Tensor) -> None:  # noqa: ARG002 - of torch
        for tally, num_bytes, storage in self._unseen:
            if storage() is not None:
                tally.held_bytes += num_bytes
        self._unseen = []


def _saves_its_input(conv: nn.Conv2d) -> bool:
    """Return whether what is saved for backward is the module's input, not something made of it."""
    return conv.padding_mode == "zeros" and type(conv).forward is nn.Conv2d.forward


def _keep_mask(given: Tensor, saved: Tensor, packed: Packed) -> None:
    relu = given.grad_fn
    if relu is None or relu.name() != "ReluBackward0":
        return
    # Under autocast the convolution saves a cast of the ReLU's result, in which small values may be 0.
    same = saved.data_ptr() == given.data_ptr() and saved.dtype == given.dtype
    mask: NonZero = packed.nonzero if same else pack_nonzero(given)
    relu._raw_saved_result.register_hooks(_always(mask), NonZero.unpack)  # type: ignore[attr-defined]


def _watch(tally: LayerTally, gradients: tuple[Tensor | None, ...]) -> None:
    for gradient in gradients:
        if gradient is not None:
            tally.add_gradient(gradient)


def _always(value: object) -> Callable[[Tensor], object]:
    # Return a pack hook that yields a prepared value and holds no reference to the tensor.
    return lambda _: value
