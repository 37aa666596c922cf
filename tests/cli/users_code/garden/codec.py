from dataclasses import dataclass

import torch

from pcr_exp.config.components import register
from pcr_exp.config.related_methods import GradientsConfig


@dataclass(kw_only=True, slots=True)
class RoundedConfig(GradientsConfig):
    name: str = "rounded"
    step: float = 2.0**-10


class Rounded:
    """Gradient codec that stores values as 16-bit multiples of a step."""

    feedback = True

    def __init__(self, step: float) -> None:
        self.step = step

    def encode(self, values):
        steps = (values / self.step).round().clamp(-32768, 32767).to(torch.int16)
        return steps.view(torch.uint8), steps.float() * self.step

    def decode(self, message, num_values):
        return message.clone().view(torch.int16).float() * self.step


@register("gradients", "rounded", RoundedConfig)
def open_rounded(config: RoundedConfig, seed: int) -> Rounded:
    return Rounded(config.step)
