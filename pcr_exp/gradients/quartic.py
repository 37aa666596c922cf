"""The lossless half of 3LC: five ternary digits in a byte (section 3.2), runs of zero bytes in one (3.3).

Five digits are 1.6 bits per value: 3^5 = 243 of 256 bytes are used; the 13 left over stand for runs.
"""

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


SHORTEST = 2
LONGEST = 14
"""Zero bytes that one code stands for: NUM_CODES is a run of 2, 255 one of 14."""


def shorten(packed: Tensor) -> Tensor:
    """Replace every run of zero bytes: fourteen at a time, then one code for the rest; a lone one stays.

    Args:
        packed: uint8 [n], each below 243.

    Returns:
        uint8 [m], m <= n.
    """
    literals = (packed != ZERO).nonzero().view(-1)
    edges = torch.nn.functional.pad(literals, (1, 1), value=-1)
    edges[-1] = len(packed)
    spans = edges[1:] - edges[:-1]  # zero bytes before each literal, and after the last, plus one
    # Where each literal ends up, behind a byte that begins the buffer and ceil((span - 1) / 14) codes.
    ends = ((spans + (2 * LONGEST - 2)) // LONGEST).cumsum(0)
    buffer = packed.new_full((int(ends[-1]),), 255)
    # A run's last code comes before its literal. Without a run that place is the buffer's first or that of
    # the literal before, which is written over it.
    buffer.index_copy_(0, ends - 1, _last_codes(packed.device).index_select(0, spans % LONGEST))
    buffer.index_copy_(0, ends[:-1], packed.index_select(0, literals))
    return buffer[1:]


def lengthen(short: Tensor, num_bytes: int) -> Tensor:
    """Undo `shorten`.

    Args:
        short: uint8 [m].
        num_bytes: Bytes wanted, n.

    Returns:
        uint8 [n].

    Raises:
        GradientError: the runs make another number of bytes.
    """
    lengths = short.to(torch.int64).sub_(NUM_CODES - SHORTEST).clamp_(min=1)
    ends = lengths.cumsum(0)
    found = int(ends[-1]) if len(ends) else 0
    if found != num_bytes:
        raise GradientError(f"zero-run codes that make {found} bytes: wanted {num_bytes}.")
    packed = short.new_full((num_bytes,), ZERO)
    literals = (short < NUM_CODES).nonzero().view(-1)
    packed.index_copy_(0, ends.index_select(0, literals) - 1, short.index_select(0, literals))
    return packed


@cache
def _last_codes(device: torch.device) -> Tensor:
    # By (run + 1) % 14: the code of a whole 14, or of the rest of 1 to 13.
    longest = NUM_CODES + LONGEST - SHORTEST
    rests = range(NUM_CODES, longest)
    return torch.tensor([rests[-1], longest, ZERO, *rests[:-1]], dtype=torch.uint8, device=device)
