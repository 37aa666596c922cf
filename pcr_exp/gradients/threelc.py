"""3LC's codec: three values, five to a byte, zero runs in one (arXiv 1802.07389)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pcr_exp.config.check import Bound
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.gradients.codec import joined, parted
from pcr_exp.gradients.quartic import lengthen, pack, packed_size, shorten, unpack
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


LARGEST_SPARSITY = 2 - 2**-23
"""The float32 number before 2."""
_SPARSITY = Bound(lambda s: 1 <= s <= LARGEST_SPARSITY, "a number in [1, 2)")


@dataclass(kw_only=True, slots=True)
class ThreeLCConfig(GradientsConfig):
    """How much 3LC leaves out of each message, and how it writes the rest."""

    name: str = "threelc"
    sparsity: Annotated[float, _SPARSITY] = 1.0
    """s in [1, 2); more sends fewer values per step."""
    zero_run: bool = True
    """Shorten runs of zero bytes."""


class ThreeLC:
    """A message is M (float32), then the payload; the payload is empty if M is NaN.

    Error accumulation, the third part of 3LC, is `tensors.Feedback`'s: `feedback` asks for it.
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


def ternary_scale(values: Tensor, sparsity: float) -> float:
    """Return M = s max|values|, a float32: what one step of quantised `values` is worth.

    Three cases are decided here, so that nothing divides by zero later and one bad value poisons no sum:

    - all zeros, no values, or values so small that M would be subnormal: 0, which sends nothing;
    - NaN or infinity among the values: NaN;
    - an M beyond float32's range: float32's largest number, which still rounds max|values| to one.

    Args:
        values: float32, any shape.
        sparsity: s in [1, 2); at 2 even the largest value would round to zero.
    """
    if values.numel() == 0:
        return 0.0
    low, high = torch.aminmax(values)
    largest = max(-low.item(), high.item())
    if not math.isfinite(largest):
        return math.nan
    import numpy as np

    # Exact in double precision, so it is rounded once.
    product = float(np.float32(sparsity)) * largest
    limits = torch.finfo(torch.float32)
    scale = float(np.float32(min(product, limits.max)))
    return scale if scale >= limits.tiny else 0.0


def quantise(values: Tensor, scale: float) -> Tensor:
    """Return round(values / scale), halves to even, as float32 in {-1, 0, 1}; zeros if `scale` is 0.

    Comparing with scale / 2 says the same as dividing and rounding, without the rounding error of a division.

    Args:
        values: float32, finite, none larger than `scale` in magnitude unless that is 0.
        scale: What `ternary_scale` gave.
    """
    return torch.nn.functional.hardshrink(values, scale / 2 if scale > 0 else math.inf).sign_()


@register("gradients", "threelc", ThreeLCConfig)
def open_threelc(config: ThreeLCConfig, seed: int) -> ThreeLC:  # noqa: ARG001
    """Draws nothing."""
    return ThreeLC(config.sparsity, zero_run=config.zero_run)
