"""What the 3LC paper published (Lim, Andersen, Kaminsky, MLSys 2019), and how sure each number is.

ResNet-110 on CIFAR-10, 10 GPU workers and a parameter server, 25,600 steps, links slowed by tc.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

REMEMBERED = "remembered, medium"
IN_ABSTRACT = "remembered, medium; 39-107 x and 16-23 x are the abstract's"
SPEEDUP_AT_1_GBIT = 1.5
"""Of 3LC, about; remembered, medium."""


@dataclass(frozen=True, slots=True)
class Published:
    """One design of the paper; NaN where nothing is remembered."""

    bits_per_value: float = nan
    ratio: float = nan
    """32 bits over them."""
    speedup_at_10_mbit: float = nan
    """Over 32-bit floats, for as many steps."""
    top1: float = nan
    certainty: str = REMEMBERED


PUBLISHED = {
    "none": Published(32, 1, 1, 0.9337),
    "int8": Published(speedup_at_10_mbit=3.62, top1=0.9333),
    "ternary_stochastic": Published(speedup_at_10_mbit=12.3, top1=0.9206),
    "onebit": Published(speedup_at_10_mbit=14.6, top1=0.9321),
    "topk 25%": Published(speedup_at_10_mbit=3.25, top1=0.9340),
    "topk 5%": Published(speedup_at_10_mbit=8.98, top1=0.9287),
    "threelc, no ZRE": Published(1.60, 20.0),
    "threelc s=1.00": Published(0.812, 39.4, 15.9, 0.9332, IN_ABSTRACT),
    "threelc s=1.50": Published(0.451, 70.9, 20.9, 0.9329),
    "threelc s=1.75": Published(0.298, 107, 22.8, 0.9351, IN_ABSTRACT),
    "threelc s=1.90": Published(0.200, 160, 22.8, 0.9310),
}
"""By the names of `pcr_exp.analysis.gradients.table.codec_name`; without zero-run encoding, of every s."""


def published(codec: str) -> Published:
    """What the paper says of a codec by its name in the table; NaN and `-` if nothing."""
    family = codec.split()[0]
    name = f"{family}, no ZRE" if codec.endswith("no ZRE") else codec
    return PUBLISHED.get(name, Published(certainty="-"))
