"""Five ternary digits in a byte: 1.6 bits per value (3LC, section 3.2). 3^5 = 243 of 256 bytes are used."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pcr_exp.errors import GradientError
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

DIGITS_PER_BYTE = 5
NUM_CODES = 3**DIGITS_PER_BYTE
ZERO = 121
"""The byte of five digits 1, which stand for the value 0."""


def packed_size(num_digits: int) -> int:
    """Bytes that so many digits take."""
    return -(-num_digits // DIGITS_PER_BYTE)


def pack(digits: Tensor) -> Tensor:
    """Cut the digits into five contiguous parts and make byte i from digit i of each part.

    The last part is filled up with the digit 1: padding then looks like zeros, which run-length encoding
    shortens.

    Args:
        digits: uint8 [n], 0, 1 or 2: a ternary value plus one.

    Returns:
        uint8 [ceil(n / 5)]: 81 p0 + 27 p1 + 9 p2 + 3 p3 + p4.
    """
    size = packed_size(len(digits))
    filled = torch.nn.functional.pad(digits, (0, DIGITS_PER_BYTE * size - len(digits)), value=1)
    parts = filled.view(DIGITS_PER_BYTE, size)
    packed = parts[0]
    for part in parts[1:]:
        packed = torch.add(part, packed, alpha=3)
    return packed


def unpack(packed: Tensor, num_digits: int) -> Tensor:
    """Undo `pack`.

    Args:
        packed: uint8 [ceil(num_digits / 5)].
        num_digits: Digits wanted, n.

    Returns:
        uint8 [n].

    Raises:
        GradientError: another number of bytes than n digits take, or a byte that no five digits make.
    """
    size = packed_size(num_digits)
    if len(packed) != size:
        raise GradientError(f"{len(packed)} quartic bytes for {num_digits} values: wanted {size}.")
    if size and int(packed.max()) >= NUM_CODES:
        raise GradientError(f"a quartic byte of {int(packed.max())}: wanted at most {NUM_CODES - 1}.")
    codes = packed.to(torch.int64)
    digits = torch.empty(DIGITS_PER_BYTE * size, dtype=torch.uint8, device=packed.device)
    for table, part in zip(_tables(packed.device), digits.view(DIGITS_PER_BYTE, size), strict=True):
        torch.index_select(table, 0, codes, out=part)
    return digits[:num_digits]


@cache
def _tables(device: torch.device) -> list[Tensor]:
    # For each of the five parts, its digit in every byte.
    every = torch.arange(NUM_CODES, device=device)
    places = reversed(range(DIGITS_PER_BYTE))
    return [(every // 3**place % 3).to(torch.uint8) for place in places]
