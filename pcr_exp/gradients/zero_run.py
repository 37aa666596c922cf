"""Runs of zero bytes in one byte: the 13 codes that quartic encoding leaves free (3LC, section 3.3)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pcr_exp.errors import GradientError
from pcr_exp.gradients.quartic import NUM_CODES, ZERO
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

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
