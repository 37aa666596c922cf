"""The interface of activation codecs, and the simplest codec.

`pcr_exp.activations.packed` stores an exact zero mask outside the codec, one bit per value. No codec can
therefore turn a zero into another value or lose a ReLU's mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class Payload(Protocol):
    """The encoded values of one tensor."""

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors that it holds; its size is that of their storages."""

    def decode(self, nonzero: Tensor) -> Tensor:
        """Return the values in the shape of `nonzero`, exactly 0 where it is false.

        Args:
            nonzero: The bool mask that was passed to `encode`.
        """


class Codec(Protocol):
    """An encoder that changes no value by more than a bound."""

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> Payload:
        """Encode a contiguous tensor.

        Args:
            values: Floating point, of any shape; [N, C, H, W] permuted to memory order.
            nonzero: `values != 0`.
            bound: Maximum absolute error of a value decoded to the dtype of `values`; above 0.
        """


@dataclass(frozen=True, slots=True)
class Exact:
    """The nonzero values, unchanged."""

    values: Tensor

    @property
    def tensors(self) -> list[Tensor]:
        return [self.values]

    def decode(self, nonzero: Tensor) -> Tensor:
        out = torch.zeros(nonzero.shape, dtype=self.values.dtype, device=self.values.device)
        return out.masked_scatter_(nonzero, self.values)


class LosslessCodec:
    """Stores every value exactly, NaN and infinity included; only -0 decodes to 0."""

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> Exact:  # noqa: ARG002 - one interface
        return Exact(values[nonzero])
