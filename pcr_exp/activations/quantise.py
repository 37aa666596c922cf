"""Our codec: cells of twice the bound, numbered from zero, and the numbers in few bits.

A value x != 0 falls into cell c = ceil(|x| / 2h) - 1 and decodes to the cell's middle, sign(x) (2c + 1) h. So
the error is at most h, uniform where values are dense, and a value that is not zero never becomes zero, as it
would with cells centred at zero (round(x / 2h)): the zeros that are stored are the zeros that decode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.activations.entropy import MAX_WIDTH, PackedIntegers, pack_integers, unpack_integers
from pcr_exp.activations.lossless import Exact
from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.config.components import register
from pcr_exp.system.bits import pack_bits, unpack_bits
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

NUM_CELLS = 2**MAX_WIDTH


@dataclass(frozen=True, slots=True)
class Quantised:
    """Cells of the values that are not zero."""

    cells: PackedIntegers
    half_step: float
    negative: Tensor | None
    """uint8, one bit for each of these values; None: there is no negative one (behind a ReLU)."""
    dtype: torch.dtype

    @property
    def tensors(self) -> list[Tensor]:
        signs = [] if self.negative is None else [self.negative]
        return [self.cells.widths, self.cells.planes, *signs]

    def decode(self, nonzero: Tensor) -> Tensor:
        values = dequantise(unpack_integers(self.cells), self.half_step, _exact_enough(self.dtype))
        if self.negative is not None:
            values = torch.where(unpack_bits(self.negative, len(values)), -values, values)
        out = torch.zeros(nonzero.shape, dtype=self.dtype, device=nonzero.device)
        return out.masked_scatter_(nonzero, values.to(self.dtype))


class QuantiseCodec:
    """Bounded error on any device; exact where the bound is too small to gain anything."""

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> Quantised | Exact:
        """Encode; `Exact` for values that are not finite, or above 2 ** 16 bounds."""
        kept = values[nonzero]
        if not len(kept):
            return Exact(kept)
        wide = kept.to(_exact_enough(values.dtype))
        largest, norm, lowest = torch.stack([wide.abs().max(), wide.norm(), wide.min()]).tolist()
        half = half_step(bound, largest, norm / math.sqrt(len(kept)), values.dtype)
        if not (half > 0 and largest < 2 * half * NUM_CELLS):  # also if largest is nan
            return Exact(kept)
        negative = pack_bits(kept < 0) if lowest < 0 else None
        return Quantised(pack_integers(quantise(wide, half)), half, negative, values.dtype)


def quantise(values: Tensor, half_step: float) -> Tensor:
    """Return the cells, int16 [n], of values that are not zero and below 2 ** 16 half steps."""
    return (values.abs() / (2 * half_step)).ceil_().sub_(1).clamp_(0, NUM_CELLS - 1).to(torch.int16)


def dequantise(cells: Tensor, half_step: float, dtype: torch.dtype) -> Tensor:
    """Return the cells' middles, without sign."""
    return cells.to(dtype).mul_(2).add_(1).mul_(half_step)


def half_step(bound: float, largest: float, rms: float, dtype: torch.dtype) -> float:
    """Return half the width of a cell that keeps errors within `bound`, rounding included.

    Never more than half of `rms`: cells wider than the data would move all values to one side, which no error
    model of symmetric errors describes, and would hardly be smaller.

    Args:
        bound: Largest error allowed.
        largest: Of the values' magnitudes.
        rms: Root mean square of the values that are not zero.
        dtype: That values are decoded to.
    """
    # Division, two products and the step itself are each rounded once, and then the result, to `dtype`.
    computing = 4 * torch.finfo(_exact_enough(dtype)).eps / 2
    storing = 0.0 if dtype is _exact_enough(dtype) else torch.finfo(dtype).eps / 2
    slack = (computing + storing) * (largest + bound)
    # The original is a number of `dtype` itself, so rounding to `dtype` at most doubles an error.
    return min(max(bound - slack, 0.48 * bound), 0.5 * rms)


def _exact_enough(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


@register("activations.codec", "quantise", ActivationsConfig)
def open_quantise(config: ActivationsConfig) -> QuantiseCodec:  # noqa: ARG001
    """Has no settings but the bounds, which it is given with the values."""
    return QuantiseCodec()
