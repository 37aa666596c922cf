"""A network that takes almost no time, so that a run's time is spent on the run itself."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from pcr_exp.config.components import register
from pcr_exp.config.training import ModelConfig


@dataclass(kw_only=True, slots=True)
class TinyConfig(ModelConfig):
    """Two convolutions with batch norm, and dropout, which draws from torch's global generator."""

    name: str = "tiny"
    dropout: float = 0.0


@register("model", "tiny", TinyConfig)
def open_tiny(config: TinyConfig, num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(config.dropout),
        nn.Linear(32, num_classes),
    )
