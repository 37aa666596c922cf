"""Values as floating-point numbers of 32 or 16 bits: what the other codecs are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcr_exp.config.components import register
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.errors import GradientError
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class Floats:
    """A message is the values, one after the other, in one floating-point type."""

    feedback = False

    def __init__(self, dtype: torch.dtype) -> None:
        """Send in this type; what is too large for it arrives as infinity, as in PyTorch's own hooks."""
        self.dtype = dtype

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Values that are not finite are sent one by one, as they are."""
        narrow = values.to(self.dtype)
        return narrow.view(torch.uint8), narrow.to(torch.float32)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        wanted = num_values * self.dtype.itemsize
        if len(message) != wanted:
            raise GradientError(f"{len(message)} bytes for {num_values} values: wanted {wanted}.")
        # A slice of a larger message may begin anywhere; numbers may not.
        return message.clone().view(self.dtype).to(torch.float32)


@register("gradients", "none", GradientsConfig)
@register("gradients", "fp16", GradientsConfig)
@register("gradients", "bf16", GradientsConfig)
def open_floats(config: GradientsConfig, seed: int) -> Floats:  # noqa: ARG001
    """The three have no settings but their names."""
    return Floats({"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[config.name])
