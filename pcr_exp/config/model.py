"""Which network."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """A torchvision classification model by its name, with a head for the dataset's label."""

    name: str = MISSING
    pretrained: bool = False
    """Load weights before the head is replaced: from `weights` if given, else torchvision's default."""
    weights: str | None = None
    """A local state dict (.pt / .pth)."""
