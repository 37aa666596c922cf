from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.training import ModelConfig


@dataclass(kw_only=True, slots=True)
class PatchesConfig(ModelConfig):
    patch_px: int = 8


@register("model", "patches", PatchesConfig)
def open_patches(config: PatchesConfig, num_classes: int):
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, config.patch_px, config.patch_px),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, num_classes),
    )
