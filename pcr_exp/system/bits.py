"""Booleans packed eight to a byte."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def bitmap_size(num_bits: int) -> int:
    """Return the number of bytes that `num_bits` bits take."""
    return -(-num_bits // 8)


# Multiplying eight bytes of 0 or 1, read as one little-endian word, by this moves byte i to bit 56 + i. No
# two of the 64 partial products share a bit, so nothing carries.
_GATHER = sum(1 << (56 - 7 * i) for i in range(8))


def pack_bits(flags: Tensor) -> Tensor:
    """Pack bool [n] into uint8 [ceil(n / 8)]; flag i is bit i % 8 of byte i // 8."""
    octets = torch.nn.functional.pad(flags.to(torch.uint8), (0, -len(flags) % 8)).view(torch.int64)
    return (octets.mul_(_GATHER) >> 56).to(torch.uint8)


def unpack_bits(packed: Tensor, num_flags: int) -> Tensor:
    """Return the bool [num_flags] that `pack_bits` packed."""
    octets = _octets(packed.device)[packed.int()]
    return octets.view(torch.uint8)[:num_flags].view(torch.bool)


@lru_cache(maxsize=8)
def _octets(device: torch.device) -> Tensor:
    # int64 [256]: entry b consists of the eight bytes, 0 or 1, for the bits of b.
    with torch.inference_mode(False):  # a tensor made during evaluation could not be used in training
        bits = torch.arange(256, device=device)[:, None] >> torch.arange(8, device=device)
        return (bits & 1).to(torch.uint8).view(torch.int64).flatten()
