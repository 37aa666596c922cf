"""The learning rate as a pure function of the update."""

from __future__ import annotations

import math

from pcr_exp.config.training import TrainingConfig


def learning_rate(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Return the rate of one update.

    Warm-up climbs linearly and reaches the full rate with its last update (Goyal et al. 2017); it scales
    whatever the schedule says, except that a cosine starts after it (Loshchilov and Hutter 2016).

    Args:
        config: The schedule, in epochs.
        step: The update, counted from 0 over the whole run.
        steps_per_epoch: Updates in an epoch, at least 1.
    """
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / warmup_steps
    return config.learning_rate * _decay(config, step, steps_per_epoch, warmup_steps)


def _decay(config: TrainingConfig, step: int, steps_per_epoch: int, warmup_steps: int) -> float:
    if config.schedule == "step":
        passed = sum(step >= milestone * steps_per_epoch for milestone in config.lr_milestones)
        return config.lr_gamma**passed
    if config.schedule == "cosine":
        decay_steps = config.epochs * steps_per_epoch - warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / decay_steps))
    return 1.0
