from dataclasses import dataclass

from pcr_exp.activations.codec import LosslessCodec
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import ActivationsConfig


@dataclass(kw_only=True, slots=True)
class HalvesConfig(ActivationsConfig):
    name: str = "error_bounded"
    codec: str = "halves"
    at_least: float = 0.0


class Halves:
    """Activation codec that rounds values to 16 bits, except for small ones, which stay exact."""

    def __init__(self, at_least: float) -> None:
        self.at_least = at_least

    def encode(self, values, nonzero, bound):
        rounded = values.half().to(values.dtype)
        return LosslessCodec().encode(rounded.where(values.abs() >= self.at_least, values), nonzero, bound)


@register("activations.codec", "halves", HalvesConfig)
def open_halves(config: HalvesConfig) -> Halves:
    return Halves(config.at_least)
