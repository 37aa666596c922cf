"""3LC's codec: three values, five to a byte, zero runs in one (arXiv 1802.07389)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcr_exp.gradients.header import joined, parted
from pcr_exp.gradients.quantise import quantise, ternary_scale
from pcr_exp.gradients.quartic import pack, packed_size, unpack
from pcr_exp.gradients.zero_run import lengthen, shorten


class ThreeLC:
    """A message is M (float32), then the payload; the payload is empty if M is NaN.

    Error accumulation, the third part of 3LC, is `pcr_exp.gradients.feedback`'s: `feedback` asks for it.
    """

    feedback = True

    def __init__(self, sparsity: float, *, zero_run: bool = True) -> None:
        """Quantise with this sparsity multiplier s in [1, 2); shorten zero runs if `zero_run`."""
        self.sparsity = sparsity
        self.zero_run = zero_run

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`; `sent` differs from finite `values` by at most M / 2."""
        scale = ternary_scale(values, self.sparsity)
        if math.isnan(scale):
            return joined([scale], values.new_empty(0, dtype=torch.uint8)), torch.full_like(values, math.nan)
        ternary = quantise(values, scale)
        packed = pack((ternary + 1).to(torch.uint8))
        return joined([scale], shorten(packed) if self.zero_run else packed), ternary.mul_(scale)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (scale,), payload = parted(message, 1)
        if math.isnan(scale):
            return torch.full((num_values,), math.nan, device=message.device)
        packed = lengthen(payload, packed_size(num_values)) if self.zero_run else payload
        return unpack(packed, num_values).float().sub_(1).mul_(scale)
