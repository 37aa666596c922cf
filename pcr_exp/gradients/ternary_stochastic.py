"""Three values drawn at random, right on average (TernGrad, Wen et al. 2017), in 3LC's quartic bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pcr_exp.config.components import register
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.gradients.bundle import joined, parted
from pcr_exp.gradients.quartic import pack, unpack
from pcr_exp.gradients.threelc import ternary_scale
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class TernaryStochastic:
    """A message is max|values| (float32), then quartic bytes; the payload is empty if the scale is NaN.

    A value v becomes sign(v) max with probability |v| / max, else 0: its mean is v, so nothing is fed back.
    """

    feedback = False

    def __init__(self, seed: int) -> None:
        """Draw from a stream of this seed; each sender needs its own, so that errors average out."""
        self.generator = torch.Generator().manual_seed(seed)

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        scale = ternary_scale(values, 1.0)
        if math.isnan(scale):
            return joined([scale], values.new_empty(0, dtype=torch.uint8)), torch.full_like(values, math.nan)
        # On the CPU wherever the values are, so that a device does not change what is drawn.
        draws = torch.rand(values.shape, generator=self.generator).to(values.device)
        ternary = values.sign().mul_(draws * scale < values.abs())
        return joined([scale], pack((ternary + 1).to(torch.uint8))), ternary.mul_(scale)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (scale,), packed = parted(message, 1)
        if math.isnan(scale):
            return torch.full((num_values,), math.nan, device=message.device)
        return unpack(packed, num_values).float().sub_(1).mul_(scale)


@register("gradients", "ternary_stochastic", GradientsConfig)
def open_ternary_stochastic(config: GradientsConfig, seed: int) -> TernaryStochastic:  # noqa: ARG001
    """Draws from a stream of the sender's own seed."""
    return TernaryStochastic(seed)
