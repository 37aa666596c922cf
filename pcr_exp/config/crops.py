"""How images become crops: one object from the command line, YAML or Python to the process that decodes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import ANTIALIAS, LoaderConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class CropSettings:
    """All settings that determine the pixels of a crop, besides the image and random draws."""

    train_px: int
    """Side in pixels of the random crops for training."""
    eval_px: int
    """Side in pixels of the centre crops for evaluation."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    antialias: bool = ANTIALIAS
    decode: str = "scaled"

    def key(self) -> dict[str, Any]:
        """Return the settings that measurements of training crops depend on."""
        return {
            "decode": self.decode,
            "antialias": self.antialias,
            "augment": asdict(self.augment),
            "image_size": self.train_px,
        }


def crops_of(
    augment: AugmentConfig, loader: LoaderConfig, train_px: int, eval_px: int | None = None
) -> CropSettings:
    """Return the crop settings for `dataset.augment`, `loader` and sizes in pixels."""
    return CropSettings(
        train_px=train_px,
        eval_px=eval_px or train_px,
        augment=augment,
        antialias=loader.antialias,
        decode=loader.decode,
    )
