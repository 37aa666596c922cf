"""What the 3LC paper published (Lim, Andersen, Kaminsky, MLSys 2019), and how sure each number is.

ResNet-110 on CIFAR-10, 10 GPU workers and a parameter server, 25,600 steps, links slowed by tc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

REMEMBERED = "remembered, medium"
IN_ABSTRACT = "remembered, medium; 39-107 x and 16-23 x are the abstract's"
SPEEDUP_AT_1_GBIT = 1.5
"""3LC's, about; remembered, medium."""


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
    ("none", None): Published(32, 1, 1, 0.9337),
    ("int8", None): Published(speedup_at_10_mbit=3.62, top1=0.9333),
    ("ternary_stochastic", None): Published(speedup_at_10_mbit=12.3, top1=0.9206),
    ("onebit", None): Published(speedup_at_10_mbit=14.6, top1=0.9321),
    ("topk", 0.25): Published(speedup_at_10_mbit=3.25, top1=0.9340),
    ("topk", 0.05): Published(speedup_at_10_mbit=8.98, top1=0.9287),
    ("threelc", 1.00): Published(0.812, 39.4, 15.9, 0.9332, IN_ABSTRACT),
    ("threelc", 1.50): Published(0.451, 70.9, 20.9, 0.9329),
    ("threelc", 1.75): Published(0.298, 107, 22.8, 0.9351, IN_ABSTRACT),
    ("threelc", 1.90): Published(0.200, 160, 22.8, 0.9310),
}
"""By codec and its number: the share that top-k sends, 3LC's s."""
WITHOUT_ZERO_RUNS = Published(1.60, 20.0)
"""3LC at every s."""


def published(codec: Mapping[Any, Any]) -> Published:
    """What the paper says of a row's codec (columns `gradients.table.CODEC`); NaN and `-` if nothing."""
    if codec["codec_name"] == "threelc" and not codec["zero_run"]:
        return WITHOUT_ZERO_RUNS
    numbers = (codec[key] for key in ("sparsity", "fraction", "rank"))
    number = next((value for value in numbers if not isnan(value)), None)
    return PUBLISHED.get((codec["codec_name"], number), Published(certainty="-"))
