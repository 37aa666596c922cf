"""Which network."""

from __future__ import annotations

import math
from dataclasses import dataclass

from omegaconf import MISSING

from pcr_exp.config.check import require


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """A torchvision classification model by its name, with a head for the dataset's label."""

    name: str = MISSING
    """The model, as its library calls it."""
    pretrained: bool = False
    """Load weights before the head is replaced: from `weights` if given, else torchvision's default."""
    weights: str | None = None
    """A local state dict (.pt / .pth)."""
    mean: list[float] | None = None
    """Pixels, red, green and blue in [0, 1], are normalised to (pixels - mean) / std. null: as the weights
    were trained (torchvision says it of its own, a run's checkpoint of itself); without any, ImageNet's."""
    std: list[float] | None = None
    """As mean: three numbers, null where the weights say it."""

    def __post_init__(self) -> None:
        require(
            (self.mean is None) == (self.std is None),
            "model.std" if self.std is None else "model.mean",
            None,
            "both model.mean and model.std, or neither",
        )
        for key, values in (("model.mean", self.mean), ("model.std", self.std)):
            require(
                values is None or (len(values) == 3 and all(math.isfinite(value) for value in values)),
                key,
                values,
                "three finite numbers, for red, green and blue in [0, 1], such as [0.485, 0.456, 0.406]",
            )
        require(
            self.std is None or all(value > 0 for value in self.std),
            "model.std",
            self.std,
            "numbers above 0: pixels are divided by them",
        )
