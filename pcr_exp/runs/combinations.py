"""Settings that do not go together, which only shows when a run is put together."""

from __future__ import annotations

from pcr_exp.config.runners import TrainConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.trainer import Trainer


def check_precision(config: TrainConfig, trainer: Trainer) -> None:
    """Raise ConfigError if gradients are coded whose scale changes with the losses'."""
    gradients = config.gradients
    if trainer.scaler.is_enabled() and (gradients.name != "none" or gradients.mode == "server"):
        raise ConfigError(
            f"training.amp=true with gradients={gradients.name} (mode {gradients.mode}): this GPU has no "
            "bfloat16, so losses are scaled by factors that change, and what a codec left out of one step "
            "would have the wrong scale in the next. Use training.amp=false."
        )


def check_bounds(config: TrainConfig) -> None:
    """Raise ConfigError if adaptive bounds would follow an optimizer that does not move."""
    adapts = config.activations.name == "error_bounded" and config.activations.bounds == "adaptive"
    if adapts and config.world_size > 1 and config.gradients.mode == "server":
        raise ConfigError(
            "activations.bounds=adaptive with gradients.mode=server: the bounds follow the optimizer's "
            "momentum, and only the first process has an optimizer that moves. Use activations.bounds=fixed, "
            "or gradients.mode=ddp."
        )
