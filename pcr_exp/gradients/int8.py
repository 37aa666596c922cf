"""Eight bits per value: the whole numbers -127..127 times one scale (a baseline of the 3LC paper)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pcr_exp.config.components import register
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.errors import GradientError
from pcr_exp.gradients.bundle import joined, parted
from pcr_exp.gradients.threelc import ternary_scale
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 127


class Int8:
    """A message is max|values| (float32), then round(127 values / max), one int8 each; a NaN stands alone."""

    feedback = False

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`."""
        scale = ternary_scale(values, 1.0)
        if math.isnan(scale):
            return joined([scale], values.new_empty(0, dtype=torch.uint8)), torch.full_like(values, math.nan)
        codes = (values / scale).mul_(_LARGEST).round_() if scale > 0 else torch.zeros_like(values)
        return joined([scale], codes.to(torch.int8).view(torch.uint8)), _values(codes, scale)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (scale,), payload = parted(message, 1)
        if math.isnan(scale):
            return torch.full((num_values,), math.nan, device=message.device)
        if len(payload) != num_values:
            raise GradientError(f"{len(payload)} eight-bit codes: wanted {num_values}.")
        return _values(payload.view(torch.int8).to(torch.float32), scale)


def _values(codes: Tensor, scale: float) -> Tensor:
    return (codes / _LARGEST).mul_(scale)


@register("gradients", "int8", GradientsConfig)
def open_int8(config: GradientsConfig, seed: int) -> Int8:  # noqa: ARG001
    """Has no settings."""
    return Int8()
