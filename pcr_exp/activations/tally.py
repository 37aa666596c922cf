"""What one layer's input and output gradient were like in one update."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcr_exp.activations.packed import Packed


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
