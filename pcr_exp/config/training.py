"""Optimiser, schedule, and how often things are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import require

REFERENCE_BATCH_SIZE = 256
"""Published learning rates are per this many images (Goyal et al. 2017)."""


@dataclass(kw_only=True, slots=True)
class TrainingConfig:
    """SGD with momentum, its schedule, and how often things are looked at."""

    epochs: int = MISSING
    batch_size: int = MISSING
    image_size: int = MISSING
    eval_image_size: int = MISSING
    learning_rate: float = MISSING
    """The rate itself, for this batch size."""
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    schedule: str = "step"
    """`step`: x lr_gamma at each of lr_milestones (epochs); `cosine`: to zero; `constant`."""
    lr_milestones: list[int] = field(default_factory=list)
    lr_gamma: float = 0.1
    warmup_epochs: float = 0.0
    label_smoothing: float = 0.0
    amp: bool = True
    """Mixed precision; takes effect on a GPU only."""
    channels_last: bool = True
    eval_every_epochs: int = 1
    eval_split: str = "val"
    """What evaluations look at: `val`, the images that results are reported on, or `tune`, those to choose
    settings by."""
    log_every_steps: int = 10
    checkpoint_every_steps: int | None = None
    """Besides the checkpoint after every evaluation (null: only those)."""
    device: str = "auto"
    num_threads: int | None = None
    """torch's CPU threads (null: the cores that decoding workers leave; on a GPU torch's own choice)."""

    def __post_init__(self) -> None:
        for key in (
            "epochs",
            "batch_size",
            "image_size",
            "eval_image_size",
            "eval_every_epochs",
            "log_every_steps",
        ):
            require(getattr(self, key) >= 1, f"training.{key}", getattr(self, key), "at least 1")
        require(self.learning_rate > 0, "training.learning_rate", self.learning_rate, "above 0")
        require(0 <= self.momentum < 1, "training.momentum", self.momentum, "in [0, 1)")
        require(0 <= self.label_smoothing < 1, "training.label_smoothing", self.label_smoothing, "in [0, 1)")
        require(self.warmup_epochs >= 0, "training.warmup_epochs", self.warmup_epochs, "0 or more")
        splits = ("val", "tune")
        require(self.eval_split in splits, "training.eval_split", self.eval_split, " or ".join(splits))
        choices = ("step", "cosine", "constant")
        require(self.schedule in choices, "training.schedule", self.schedule, " or ".join(choices))


def scaled_learning_rate(per_256: float, batch_size: int) -> float:
    """Return the rate for `batch_size` images, given the rate for 256 (Goyal et al. 2017, section 2.1)."""
    return per_256 * batch_size / REFERENCE_BATCH_SIZE
