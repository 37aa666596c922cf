"""The configuration of `python -m experiments.throughput`."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import expanded, require
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.plan import PlanConfig
from pcr_exp.config.runners import RunnerConfig


@dataclass(kw_only=True, slots=True)
class ThroughputConfig(RunnerConfig):
    """`python -m experiments.throughput`"""

    dataset: DatasetConfig = MISSING
    """Its training images; `dataset.augment` is not used: all loaders do the same standard crop."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """Ours; peers are given its num_workers and prefetch_batches."""
    scans: list[str] = MISSING
    """Ours: baseline, group_1 to group_10."""
    decodes: list[str] = field(default_factory=list)
    """Values of `loader.decode` to measure side by side; none: that of `loader` alone."""
    antialiases: list[bool] = field(default_factory=list)
    """Values of `loader.antialias` to measure side by side; none: that of `loader` alone. Peers have filters
    of their own, or none: the table says which."""
    peers: list[str] = MISSING
    """Loaders of others; one that cannot run here is listed as absent, with the reason."""
    image_size: int = 224
    batch_size: int = 64
    model_images_per_s: float | None = 1000.0
    """Speed of the pretended model, for a second measurement that shows the wait share (null: none)."""
    bandwidths_mib_per_s: list[float] = field(default_factory=list)
    """Throttles, each by itself, for ours and for one file per image."""
    latencies_ms: list[float] = field(default_factory=list)
    requests_per_s: list[float] = field(default_factory=list)
    repeats: int = 5
    measure_s: float = 2.0
    """Each measurement takes as many whole epochs as this needs, at least one; of `validate`: its seconds."""
    settle_s: float = 1.0
    """Of `validate`: seconds before, in which loaders start and the first windows come."""
    cold_cache: bool = False
    """Drop what a loader reads from the page cache before each measurement, as far as the kernel allows."""
    static_copies: bool = True
    """Also build copies at reduced quality, as large as the scan groups, to compare their space with."""
    on_error: str = "skip"
    seed: int = 0
    measure: bool = True
    """false: measure nothing, draw what `out` holds."""
    plan: PlanConfig | None = None
    """A cluster to predict for; then nothing is measured, and every setting outside `plan` is unused."""
    validate: bool = False
    """Instead of the above: measure scans under throttles with `processes` readers that share each, beside
    what the throughput model predicts. Adds `repeats` to those that `out` holds already."""
    runs_roots: list[str] = field(default_factory=list)
    """Of `validate`: folders of finished runs, whose times to accuracy are held against the model's too."""
    processes: list[int] = field(default_factory=lambda: [1, 2, 4])
    work: str = "data/throughput"
    """Every format of the images is built here, once."""
    out: str = "results/throughput/${dataset.name}"

    def __post_init__(self) -> None:
        self.work, self.out = expanded(self.work), expanded(self.out)
        self.runs_roots = [expanded(root) for root in self.runs_roots]
        require(bool(self.scans or self.peers), "scans", self.scans, "at least one loader, here or in peers")
        for key in ("image_size", "batch_size", "repeats"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        require(self.measure_s > 0, "measure_s", self.measure_s, "seconds above 0")
        require(self.settle_s > 0, "settle_s", self.settle_s, "seconds above 0")
        model = self.model_images_per_s
        require(model is None or model > 0, "model_images_per_s", model, "null or a rate above 0")
        for key in ("bandwidths_mib_per_s", "latencies_ms", "requests_per_s"):
            require(all(limit > 0 for limit in getattr(self, key)), key, getattr(self, key), "limits above 0")
        require(
            bool(self.processes) and all(count >= 1 for count in self.processes),
            "processes",
            self.processes,
            "numbers of reading processes, at least 1",
        )
        require(not (self.validate and self.plan), "validate", self.validate, "false where a plan is given")
        require(self.on_error in ("fail", "skip"), "on_error", self.on_error, "fail or skip")
