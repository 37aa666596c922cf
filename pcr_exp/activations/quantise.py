"""The built-in codec: uniform quantisation to cells of twice the bound, with bit-packed cell numbers.

A value x != 0 falls into cell c = ceil(|x| / 2h) - 1 and decodes to the cell's midpoint, sign(x) (2c + 1) h.
The error is at most h, and uniform where values are dense. A nonzero value never decodes to zero, as it could
with cells centred at zero (round(x / 2h)), so exactly the original zeros decode to zero.

Entropy coders such as Huffman and ANS decode code words serially. Here the numbers of each block of 32 have
the bit width of the largest, and blocks are written bit plane by bit plane. All numbers then decode in
parallel, at a cost of half a bit per number above the entropy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.activations.codec import Exact
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.system.bits import pack_bits, unpack_bits
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


BLOCK = 32
MAX_WIDTH = 15
"""Maximum bits per number; each width is stored in four bits."""


@dataclass(frozen=True, slots=True)
class PackedIntegers:
    """The result of `pack_integers`."""

    widths: Tensor
    """uint8: bits per number of each block, two blocks per byte."""
    planes: Tensor
    """uint8: bit 0 of all blocks that have one, then bit 1, and so on; each plane starts with the widest."""
    num_values: int


def pack_integers(values: Tensor) -> PackedIntegers:
    """Pack int16 [n], each in [0, 2 ** 15)."""
    blocks = torch.nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    widths = _bit_lengths(blocks)
    rows = blocks[_widest_first(widths)]
    planes = [pack_bits((rows[:n] & (1 << k)).flatten() != 0) for k, n in enumerate(_plane_sizes(widths))]
    packed = torch.cat(planes) if planes else torch.empty(0, dtype=torch.uint8, device=values.device)
    return PackedIntegers(_pair(widths), packed, len(values))


def unpack_integers(packed: PackedIntegers) -> Tensor:
    """Return the int16 [n] that were packed."""
    num_blocks = -(-packed.num_values // BLOCK)
    widths = _split(packed.widths, num_blocks)
    rows = torch.zeros(num_blocks, BLOCK, dtype=torch.int16, device=widths.device)
    start = 0
    for k, n in enumerate(_plane_sizes(widths)):
        end = start + n * BLOCK // 8
        bits = unpack_bits(packed.planes[start:end], n * BLOCK).view(n, BLOCK)
        rows[:n] |= bits.to(torch.int16) << k
        start = end
    blocks = torch.empty_like(rows)
    blocks[_widest_first(widths)] = rows
    return blocks.flatten()[: packed.num_values]


def _bit_lengths(blocks: Tensor) -> Tensor:
    # frexp writes x as m * 2 ** e with m in [0.5, 1): e is the bit length, 0 for 0.
    largest = blocks.amax(1) if len(blocks) else blocks.new_empty(0)
    return torch.frexp(largest.float()).exponent.to(torch.uint8)


def _widest_first(widths: Tensor) -> Tensor:
    # Stable, so that packing and unpacking agree on the order.
    return torch.argsort(widths, descending=True, stable=True)


def _plane_sizes(widths: Tensor) -> list[int]:
    # Number of blocks that have bit 0, bit 1, and so on.
    counts = torch.bincount(widths, minlength=MAX_WIDTH + 1)
    wider = counts.flip(0).cumsum(0).flip(0)[1:].tolist()
    return [n for n in wider if n]


def _pair(widths: Tensor) -> Tensor:
    low, high = torch.nn.functional.pad(widths, (0, len(widths) % 2)).view(-1, 2).unbind(1)
    return low | (high << 4)


def _split(pairs: Tensor, num_blocks: int) -> Tensor:
    return torch.stack([pairs & 15, pairs >> 4], dim=1).flatten()[:num_blocks]


NUM_CELLS = 2**MAX_WIDTH


@dataclass(frozen=True, slots=True)
class Quantised:
    """Cell numbers and signs of the nonzero values."""

    cells: PackedIntegers
    half_step: float
    negative: Tensor | None
    """uint8, one bit per nonzero value; None if no value is negative, as after a ReLU."""
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
    """Error-bounded codec for any device; lossless where the bound is too small to save memory."""

    def encode(self, values: Tensor, nonzero: Tensor, bound: float) -> Quantised | Exact:
        """Encode; return `Exact` if a value is not finite or reaches 2 ** 16 half steps, or if all are 0."""
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
    """Return the cell numbers, int16 [n], of nonzero values below 2 ** 16 half steps in magnitude."""
    return (values.abs() / (2 * half_step)).ceil_().sub_(1).clamp_(0, NUM_CELLS - 1).to(torch.int16)


def dequantise(cells: Tensor, half_step: float, dtype: torch.dtype) -> Tensor:
    """Return the unsigned midpoints of cells."""
    return cells.to(dtype).mul_(2).add_(1).mul_(half_step)


def half_step(bound: float, largest: float, rms: float, dtype: torch.dtype) -> float:
    """Return half the cell width that keeps errors within `bound`, rounding included.

    It is at most half of `rms`. Cells wider than the data would shift all values in one direction, which a
    model of symmetric errors does not describe, and would hardly compress better.

    Args:
        bound: Maximum absolute error.
        largest: Largest magnitude of the values.
        rms: Root mean square of the nonzero values.
        dtype: Type that values are decoded to.
    """
    # The division, two products and the step itself are each rounded once, then the result to `dtype`.
    computing = 4 * torch.finfo(_exact_enough(dtype)).eps / 2
    storing = 0.0 if dtype is _exact_enough(dtype) else torch.finfo(dtype).eps / 2
    slack = (computing + storing) * (largest + bound)
    # The original is representable in `dtype`, so rounding to `dtype` at most doubles an error.
    return min(max(bound - slack, 0.48 * bound), 0.5 * rms)


def _exact_enough(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


@dataclass(kw_only=True, slots=True)
class QuantiseConfig(ActivationsConfig):
    """Settings for the `quantise` codec: none of its own, since `encode` receives the error bound."""

    name: str = "error_bounded"
    codec: str = "quantise"


@register("activations.codec", "quantise", QuantiseConfig)
def open_quantise(config: QuantiseConfig) -> QuantiseCodec:  # noqa: ARG001
    """Return the quantising codec, which needs no settings."""
    return QuantiseCodec()
