"""3LC's codec: ternary values, packed five to a byte, with run-length coded zeros (arXiv 1802.07389).

Five ternary digits per byte (section 3.2) take 1.6 bits per value. They use 3^5 = 243 of the 256 byte values;
the other 13 stand for runs of zero bytes (section 3.3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pcr_exp.config.check import Bound
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.errors import GradientError
from pcr_exp.gradients.codec import joined, nan_message, nan_values, parted
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


LARGEST_SPARSITY = 2 - 2**-23
"""The largest float32 below 2."""
_SPARSITY = Bound(lambda s: 1 <= s <= LARGEST_SPARSITY, "a number in [1, 2)")


@dataclass(kw_only=True, slots=True)
class ThreeLCConfig(GradientsConfig):
    """How many values 3LC rounds to zero, and whether it shortens runs of zeros."""

    name: str = "threelc"
    sparsity: Annotated[float, _SPARSITY] = 1.0
    """Sparsity multiplier s in [1, 2); a larger one sends fewer values per step."""
    zero_run: bool = True
    """Shorten runs of zero bytes."""


class ThreeLC:
    """A message is M (float32), then the payload; the payload is empty if M is NaN.

    Error accumulation, the third part of 3LC, is done by `tensors.Feedback`; `feedback` requests it.
    """

    feedback = True

    def __init__(self, sparsity: float, *, zero_run: bool = True) -> None:
        """Quantise with this sparsity multiplier s in [1, 2); shorten zero runs if `zero_run`."""
        self.sparsity = sparsity
        self.zero_run = zero_run

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Decoded values differ from finite `values` by at most M / 2."""
        scale = ternary_scale(values, self.sparsity)
        if math.isnan(scale):
            return nan_message(values, 1)
        ternary = quantise(values, scale)
        packed = pack((ternary + 1).to(torch.uint8))
        return joined([scale], shorten(packed) if self.zero_run else packed), ternary.mul_(scale)

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """See `Codec.decode`."""
        (scale,), payload = parted(message, 1)
        if math.isnan(scale):
            return nan_values(message, num_values)
        packed = lengthen(payload, packed_size(num_values)) if self.zero_run else payload
        return unpack(packed, num_values).float().sub_(1).mul_(scale)


def ternary_scale(values: Tensor, sparsity: float) -> float:
    """Return M = s max|values|, a float32: the size of one quantisation step.

    Three cases are decided here, so that nothing divides by zero later and one bad value spoils no sum:

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

    # The product is exact in double precision, so it is rounded only once.
    product = float(np.float32(sparsity)) * largest
    limits = torch.finfo(torch.float32)
    scale = float(np.float32(min(product, limits.max)))
    return scale if scale >= limits.tiny else 0.0


def quantise(values: Tensor, scale: float) -> Tensor:
    """Return round(values / scale), halves to even, as float32 in {-1, 0, 1}; zeros if `scale` is 0.

    Comparing with scale / 2 is equivalent to dividing and rounding, without the division's rounding error.

    Args:
        values: float32, finite, none larger than `scale` in magnitude unless that is 0.
        scale: The result of `ternary_scale`.
    """
    return torch.nn.functional.hardshrink(values, scale / 2 if scale > 0 else math.inf).sign_()


DIGITS_PER_BYTE = 5
NUM_CODES = 3**DIGITS_PER_BYTE
ZERO = 121
"""The byte of five digits 1, each of which stands for the value 0."""


def packed_size(num_digits: int) -> int:
    """Number of bytes that `num_digits` digits take."""
    return -(-num_digits // DIGITS_PER_BYTE)


def pack(digits: Tensor) -> Tensor:
    """Cut the digits into five contiguous parts and make byte i from digit i of each part.

    The last part is padded with the digit 1. Padding then looks like zeros, which run-length coding shortens.

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
        GradientError: the number of bytes does not fit n digits, or a byte does not encode five digits.
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
    # For each of the five parts, its digit in every byte value.
    every = torch.arange(NUM_CODES, device=device)
    powers = reversed(range(DIGITS_PER_BYTE))
    return [(every // 3**power % 3).to(torch.uint8) for power in powers]


SHORTEST = 2
LONGEST = 14
"""Largest number of zero bytes per code: NUM_CODES stands for a run of 2, 255 for one of 14."""


def shorten(packed: Tensor) -> Tensor:
    """Replace runs of zero bytes by codes for up to 14 each; a single zero byte, also a remainder, stays.

    Args:
        packed: uint8 [n], each below 243.

    Returns:
        uint8 [m], m <= n.
    """
    literals = (packed != ZERO).nonzero().view(-1)
    edges = torch.nn.functional.pad(literals, (1, 1), value=-1)
    edges[-1] = len(packed)
    spans = edges[1:] - edges[:-1]  # number of zero bytes before each literal, and after the last, plus one
    # Index of each literal, after a leading byte in the buffer and ceil((span - 1) / 14) codes per span.
    ends = ((spans + (2 * LONGEST - 2)) // LONGEST).cumsum(0)
    buffer = packed.new_full((int(ends[-1]),), 255)
    # A run's last code precedes its literal. Without a run, that index is the leading byte's or the previous
    # literal's, which overwrites the code.
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
        GradientError: the runs expand to another number of bytes.
    """
    lengths = short.to(torch.int64).sub_(NUM_CODES - SHORTEST).clamp_(min=1)
    ends = lengths.cumsum(0)
    found = int(ends[-1]) if len(ends) else 0
    if found != num_bytes:
        raise GradientError(f"zero-run codes for {found} bytes: wanted {num_bytes}.")
    packed = short.new_full((num_bytes,), ZERO)
    literals = (short < NUM_CODES).nonzero().view(-1)
    packed.index_copy_(0, ends.index_select(0, literals) - 1, short.index_select(0, literals))
    return packed


@cache
def _last_codes(device: torch.device) -> Tensor:
    # Indexed by (run + 1) % 14: the code of a full run of 14, or of a remainder of 1 to 13.
    longest = NUM_CODES + LONGEST - SHORTEST
    rests = range(NUM_CODES, longest)
    return torch.tensor([rests[-1], longest, ZERO, *rests[:-1]], dtype=torch.uint8, device=device)


@register("gradients", "threelc", ThreeLCConfig)
def open_threelc(config: ThreeLCConfig, seed: int) -> ThreeLC:  # noqa: ARG001
    """Open the codec, which draws nothing at random."""
    return ThreeLC(config.sparsity, zero_run=config.zero_run)
