"""How images become crops: one object from the command line, YAML or Python to the process that decodes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import ANTIALIAS, LoaderConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class CropSettings:
    """All that decides the pixels of a crop, beside the image and what is drawn at random."""

    train_px: int
    """Pixels of a side of the random crops to train on."""
    eval_px: int
    """The same of the centre crops to evaluate on."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    antialias: bool = ANTIALIAS
    decode: str = "scaled"

    def key(self) -> dict[str, Any]:
        """The settings that measurements of training crops depend on."""
        return {
            "decode": self.decode,
            "antialias": self.antialias,
            "augment": asdict(self.augment),
            "image_size": self.train_px,
        }


def crops_of(
    augment: AugmentConfig, loader: LoaderConfig, train_px: int, eval_px: int | None = None
) -> CropSettings:
    """The crops that settings ask for: `dataset.augment`, `loader`, and their sizes (px)."""
    return CropSettings(
        train_px=train_px,
        eval_px=eval_px or train_px,
        augment=augment,
        antialias=loader.antialias,
        decode=loader.decode,
    )
