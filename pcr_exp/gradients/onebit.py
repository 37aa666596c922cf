"""One bit per value: its side of zero (1-bit SGD, Seide et al. 2014; "MQE 1-bit" in the 3LC paper)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pcr_exp.config.components import register
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.errors import GradientError
from pcr_exp.gradients.bundle import joined, parted
from pcr_exp.system.bits import bitmap_size, pack_bits, unpack_bits
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class OneBit:
    """A message is two float32 and a bitmap: the mean of values >= 0, mean of those below, and who is which.

    The means are what makes the squared error least. One scale per tensor, where Seide et al. have one per
    column. The bitmap is missing if a mean is NaN.
    """

    feedback = True

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        positive = values >= 0
        num_positive = int(positive.sum())
        high = values.clamp(min=0).sum().item() / max(num_positive, 1)
        low = values.clamp(max=0).sum().item() / max(len(values) - num_positive, 1)
        # Infinities of either sign are caught apart, and so is a sum beyond float32's range.
        if not math.isfinite(high) or not math.isfinite(low):
            nothing = values.new_empty(0, dtype=torch.uint8)
            return joined([math.nan, math.nan], nothing), torch.full_like(values, math.nan)
        message = joined([high, low], pack_bits(positive))
        return message, _values(positive, *parted(message, 2)[0])

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (high, low), bitmap = parted(message, 2)
        if math.isnan(high):
            return torch.full((num_values,), math.nan, device=message.device)
        if len(bitmap) != bitmap_size(num_values):
            wanted = bitmap_size(num_values)
            raise GradientError(f"{len(bitmap)} bytes of bits for {num_values} values: wanted {wanted}.")
        return _values(unpack_bits(bitmap, num_values), high, low)


def _values(positive: Tensor, high: float, low: float) -> Tensor:
    return torch.where(positive, high, low)


@register("gradients", "onebit", GradientsConfig)
def open_onebit(config: GradientsConfig, seed: int) -> OneBit:  # noqa: ARG001
    """Has no settings."""
    return OneBit()
