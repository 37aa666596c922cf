"""The linear scaling rule, as a function and as `${scaled_learning_rate:rate,batch_size}` in YAML."""

from __future__ import annotations

from omegaconf import OmegaConf

REFERENCE_BATCH_SIZE = 256
"""Published rates are per this many images (Goyal et al. 2017)."""


def scaled_learning_rate(per_256: float, batch_size: int) -> float:
    """Return the rate for `batch_size` images, given the rate for 256 (Goyal et al. 2017, section 2.1)."""
    return per_256 * batch_size / REFERENCE_BATCH_SIZE


OmegaConf.register_new_resolver("scaled_learning_rate", scaled_learning_rate, replace=True)
