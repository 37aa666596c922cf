"""Eight truths in a byte."""

from __future__ import annotations

import torch
from torch import Tensor

_BITS = 8


def bitmap_size(num_bits: int) -> int:
    """Bytes that so many bits take."""
    return -(-num_bits // _BITS)


def pack_bits(bits: Tensor) -> Tensor:
    """Return uint8 [ceil(n / 8)] for bool [n]; bit i is in byte i // 8, the lowest first."""
    filled = torch.nn.functional.pad(bits.view(torch.uint8), (0, -len(bits) % _BITS)).view(-1, _BITS)
    return (filled << _shifts(bits.device)).sum(1, dtype=torch.uint8)


def unpack_bits(bitmap: Tensor, num_bits: int) -> Tensor:
    """Return bool [num_bits] of the uint8 [ceil(num_bits / 8)] that `pack_bits` made."""
    return (bitmap[:, None] >> _shifts(bitmap.device)).bitwise_and_(1).view(-1)[:num_bits].bool()


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(_BITS, dtype=torch.uint8, device=device)
