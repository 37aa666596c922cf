"""Where curves go besides the run directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import require


@dataclass(kw_only=True, slots=True)
class TrackingConfig:
    """Where curves go besides the run directory."""

    name: str = MISSING
    """`none` or `wandb`."""
    mode: str = "offline"
    project: str = "pcr-exp"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(self.name in ("none", "wandb"), "tracking.name", self.name, "none or wandb")
        require(self.mode in ("offline", "online"), "tracking.mode", self.mode, "offline or online")
