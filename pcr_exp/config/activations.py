"""What is kept of convolution inputs between forward and backward; codecs add settings of their own."""

from __future__ import annotations

from dataclasses import dataclass

from pcr_exp.config.check import require
from pcr_exp.config.components import component, names


@dataclass(kw_only=True, slots=True)
class ActivationsConfig:
    """What is kept of convolution inputs between forward and backward."""

    name: str = "none"
    """`none`: everything, as torch does. `lossless`: zeros as bits, the rest as it is. `error_bounded`: to
    within a bound. `recompute`: only the inputs of blocks, which run again in backward."""
    codec: str = "quantise"
    """The codec of error_bounded, as it is registered. `quantise`: ours, on any device. `sz`: SZ3, on the CPU
    (extra `sz`)."""
    bounds: str = "adaptive"
    """`adaptive`: per layer, every `interval` updates, by the error model. `fixed`: initial_bound."""
    initial_bound: float = 1e-4
    """Largest error of an input value before the first adaptation. The paper's own is not known to us."""
    interval: int = 1000
    """W: updates between two looks at the layers."""
    momentum_fraction: float = 0.01
    """Accepted standard deviation of the gradient error, as a share of a weight's mean momentum."""
    error_model: str = "exact"
    """`exact`: no free parameter. `paper`: with the empirical `paper_factor`."""
    paper_factor: float = 0.32
    """The coefficient of `error_model=paper`."""

    def __post_init__(self) -> None:
        choices = {
            "name": ("none", "lossless", "error_bounded", "recompute"),
            "codec": names("activations.codec"),
            "bounds": ("adaptive", "fixed"),
            "error_model": ("exact", "paper"),
        }
        for key, wanted in choices.items():
            value = getattr(self, key)
            require(value in wanted, f"activations.{key}", value, " or ".join(wanted))
        if self.name == "error_bounded":
            schema = component("activations.codec", self.codec).schema
            wanted = "the codec of these settings; activations=error_bounded_sz, say, chooses both"
            require(schema is type(self), "activations.codec", self.codec, wanted)
        for key in ("initial_bound", "momentum_fraction", "paper_factor"):
            require(getattr(self, key) > 0, f"activations.{key}", getattr(self, key), "above 0")
        require(self.interval >= 1, "activations.interval", self.interval, "at least 1")
