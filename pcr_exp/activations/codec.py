"""The interface of activation codecs, and the simplest one.

Which values are zero is stored exactly and beside every codec (`pcr_exp.activations.packed`), one bit a
value, so that no codec can turn a zero into something else or hide a ReLU's mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class Payload(Protocol):
    """The values of one tensor, encoded."""

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it saves, measured by the size of the storages."""

    def decode(self, nonzero: Tensor) -> Tensor:
        """Return the values, in `nonzero`'s shape, and exactly 0 where it is false.

        Args:
            nonzero: bool, as it was given to `encode`.
        """


class Codec(Protocol):
    """Encodes tensors so that no value moves by more than a bound."""

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> Payload:
        """Encode a contiguous tensor.

        Args:
            values: Floating point, of any shape: [N, C, H, W] as it lies in memory.
            nonzero: `values != 0`.
            bound: Largest error of a decoded value, in the values' own dtype; above 0.
        """


@dataclass(frozen=True, slots=True)
class Exact:
    """The values that are not zero, unchanged."""

    values: Tensor

    @property
    def tensors(self) -> list[Tensor]:
        return [self.values]

    def decode(self, nonzero: Tensor) -> Tensor:
        out = torch.zeros(nonzero.shape, dtype=self.values.dtype, device=self.values.device)
        return out.masked_scatter_(nonzero, self.values)


class LosslessCodec:
    """Keeps every value exactly, nan and infinity too; only -0 comes back as 0."""

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> Exact:  # noqa: ARG002 - one interface
        return Exact(values[nonzero])
