"""The largest values only, and a bitmap that says which ("sparsification" in the 3LC paper)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.errors import GradientError
from pcr_exp.system.bits import bitmap_size, pack_bits, unpack_bits
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_VALUE_BYTES = 4


@dataclass(kw_only=True, slots=True)
class TopKConfig(GradientsConfig):
    """Which share of a tensor's values is sent."""

    name: str = "topk"
    fraction: float = 0.25
    """Share of a tensor's values that is sent."""

    def __post_init__(self) -> None:
        GradientsConfig.__post_init__(self)
        require(0 < self.fraction <= 1, "gradients.fraction", self.fraction, "a share in (0, 1]")


class TopK:
    """A message is a bitmap of one bit per value, then the chosen values (float32), in their order.

    Chosen are the ceil(fraction n) largest in magnitude. The message is empty if a value is not finite.
    """

    feedback = True

    def __init__(self, fraction: float) -> None:
        """Send this share of the values, in (0, 1]."""
        self.fraction = fraction

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        if not torch.isfinite(values).all():
            return values.new_empty(0, dtype=torch.uint8), torch.full_like(values, math.nan)
        chosen = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        places = values.abs().topk(math.ceil(self.fraction * len(values)), sorted=False).indices
        chosen[places] = True
        message = torch.cat([pack_bits(chosen), values[chosen].view(torch.uint8)])
        return message, torch.where(chosen, values, 0)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        if num_values and not len(message):
            return torch.full((num_values,), math.nan, device=message.device)
        size = bitmap_size(num_values)
        chosen = unpack_bits(message[:size], num_values)
        wanted = size + _VALUE_BYTES * int(chosen.sum())
        if len(chosen) != num_values or len(message) != wanted:
            raise GradientError(f"{len(message)} bytes of sparse values: the bitmap wants {wanted}.")
        values = torch.zeros(num_values, device=message.device)
        values[chosen] = message[size:].clone().view(torch.float32)
        return values


@register("gradients", "topk", TopKConfig)
def open_topk(config: TopKConfig, seed: int) -> TopK:  # noqa: ARG001
    """Draws nothing."""
    return TopK(config.fraction)
