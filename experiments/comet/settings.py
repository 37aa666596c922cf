"""The settings of `python -m experiments.activation_study`."""

from __future__ import annotations

from dataclasses import dataclass, field

from pcr_exp.config.check import expanded, require
from pcr_exp.config.commands import TrainConfig


@dataclass(kw_only=True, slots=True)
class ActivationStudyConfig(TrainConfig):
    """`python -m experiments.activation_study`: batch and model are those of `experiments.train`."""

    bounds: list[float] = field(default_factory=lambda: [1e-1, 1e-2, 1e-3, 1e-4])
    """Error bounds to measure at."""
    batch_sizes: list[int] = field(default_factory=lambda: [4, 16, 64])
    """Batch sizes to measure gradient errors at."""
    run: str | None = None
    """Folder of a finished run with compressed activations, whose ratios and bounds are drawn too."""
    out: str = "outputs/activations/${dataset.name}"
    """Folder of rows and figures."""

    def __post_init__(self) -> None:
        TrainConfig.__post_init__(self)
        self.out = expanded(self.out)
        self.run = None if self.run is None else expanded(self.run)
        for key in ("bounds", "batch_sizes"):
            values = getattr(self, key)
            require(bool(values) and min(values) > 0, key, values, "one value or more, each above 0")
        largest = self.training.batch_size
        wanted = f"at most training.batch_size={largest} each"
        require(max(self.batch_sizes) <= largest, "batch_sizes", self.batch_sizes, wanted)
