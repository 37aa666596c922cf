"""Settings of `python -m experiments.activation_study`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pcr_exp.config.check import PATH, any_each, require
from pcr_exp.config.commands import TrainConfig

_POSITIVE = any_each(lambda value: value > 0, "one value or more, each above 0")


@dataclass(kw_only=True, slots=True)
class ActivationStudyConfig(TrainConfig):
    """Settings of `python -m experiments.activation_study`; batch and model are as in `experiments.train`."""

    bounds: Annotated[list[float], _POSITIVE] = field(default_factory=lambda: [1e-1, 1e-2, 1e-3, 1e-4])
    """Error bounds to measure."""
    batch_sizes: Annotated[list[int], _POSITIVE] = field(default_factory=lambda: [4, 16, 64])
    """Batch sizes for which to measure gradient errors."""
    run: Annotated[str | None, PATH] = None
    """Folder of a finished run with compressed activations, whose ratios and bounds are drawn too."""
    out: Annotated[str, PATH] = "outputs/activations/${dataset.name}"
    """Folder for rows and figures."""

    def __post_init__(self) -> None:
        TrainConfig.__post_init__(self)
        largest = self.training.batch_size
        wanted = f"at most training.batch_size={largest} each"
        require(max(self.batch_sizes) <= largest, "batch_sizes", self.batch_sizes, wanted)
