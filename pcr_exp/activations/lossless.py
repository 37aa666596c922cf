"""Zeros as bits, everything else as it is: what sparsity alone is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


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
