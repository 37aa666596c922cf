"""Small whole numbers in few bits, in parallel on any device.

Entropy stages that read one code word after the other (Huffman, ANS) decode serially. Here every block of 32
numbers is given the width of its largest one, and blocks are written bit plane by bit plane: no number waits
for another, and half a bit per number above the entropy is what that costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.system.bits import pack_bits, unpack_bits
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 32
MAX_WIDTH = 15
"""Bits of the largest number; widths are written in four bits each."""


@dataclass(frozen=True, slots=True)
class PackedIntegers:
    """What `pack_integers` returns."""

    widths: Tensor
    """uint8: bits per number, two blocks to a byte."""
    planes: Tensor
    """uint8: bit 0 of all blocks that have one, then bit 1, and so on; widest blocks first in each."""
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
    # How many blocks have a bit 0, a bit 1, ...
    counts = torch.bincount(widths, minlength=MAX_WIDTH + 1)
    wider = counts.flip(0).cumsum(0).flip(0)[1:].tolist()
    return [n for n in wider if n]


def _pair(widths: Tensor) -> Tensor:
    low, high = torch.nn.functional.pad(widths, (0, len(widths) % 2)).view(-1, 2).unbind(1)
    return low | (high << 4)


def _split(pairs: Tensor, num_blocks: int) -> Tensor:
    return torch.stack([pairs & 15, pairs >> 4], dim=1).flatten()[:num_blocks]
