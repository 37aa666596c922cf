"""The one place where a codec's name becomes a codec."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.gradients.codec import Codec
from pcr_exp.gradients.floats import Floats
from pcr_exp.gradients.int8 import Int8
from pcr_exp.gradients.onebit import OneBit
from pcr_exp.gradients.ternary_stochastic import TernaryStochastic
from pcr_exp.gradients.threelc import ThreeLC
from pcr_exp.gradients.topk import TopK


def open_codec(config: GradientsConfig, seed: int) -> Codec:
    """Make the configured codec; `seed` is of its lots, and must differ between senders.

    Raises:
        KeyError: `powersgd`, which makes sums of factors and no messages.
    """
    makers: dict[str, Callable[[], Codec]] = {
        "none": lambda: Floats(torch.float32),
        "fp16": lambda: Floats(torch.float16),
        "bf16": lambda: Floats(torch.bfloat16),
        "int8": Int8,
        "ternary_stochastic": lambda: TernaryStochastic(seed),
        "onebit": OneBit,
        "topk": lambda: TopK(config.fraction),
        "threelc": lambda: ThreeLC(config.sparsity, zero_run=config.zero_run),
    }
    return makers[config.name]()
