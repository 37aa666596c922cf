"""Runs of zero bytes in one byte: the 13 codes that quartic encoding leaves free (3LC, section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from pcr_exp.errors import GradientError
from pcr_exp.gradients.quartic import NUM_CODES, ZERO

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
    literals = (packed != ZERO).nonzero().squeeze(1)
    edges = torch.nn.functional.pad(literals, (1, 0), value=-1)
    edges = torch.nn.functional.pad(edges, (0, 1), value=len(packed))
    runs = edges.diff() - 1  # zero bytes before each literal, and after the last
    rests = runs % LONGEST
    ends = (runs // LONGEST + (rests > 0) + 1).cumsum(0)  # one past the place of the literal after the run
    short = packed.new_full((int(ends[-1]) - 1,), 255)
    has_rest = rests.nonzero().squeeze(1)
    rest_codes = _codes(packed.device).index_select(0, rests.index_select(0, has_rest))
    short.index_copy_(0, ends.index_select(0, has_rest) - 2, rest_codes)
    short.index_copy_(0, ends[:-1] - 1, packed.index_select(0, literals))
    return short


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
    excess = short.to(torch.int64) - (NUM_CODES - SHORTEST)
    lengths = torch.where(short >= NUM_CODES, excess, 1)
    ends = lengths.cumsum(0)
    found = int(ends[-1]) if len(ends) else 0
    if found != num_bytes:
        raise GradientError(f"zero-run codes that make {found} bytes: wanted {num_bytes}.")
    packed = short.new_full((num_bytes,), ZERO)
    literals = (short < NUM_CODES).nonzero().squeeze(1)
    packed.index_copy_(0, ends.index_select(0, literals) - 1, short.index_select(0, literals))
    return packed


def _codes(device: torch.device) -> Tensor:
    # The code of a run of 0..14; there is none for 0.
    longer = range(NUM_CODES, NUM_CODES + LONGEST - SHORTEST + 1)
    return torch.tensor([0, ZERO, *longer], dtype=torch.uint8, device=device)
