"""The settings of `python -m experiments.report`."""

from __future__ import annotations

from dataclasses import dataclass, field

from pcr_exp.config.check import expanded
from pcr_exp.config.commands import RunnerConfig, TrackingConfig, no_tracking


@dataclass(kw_only=True, slots=True)
class ReportConfig(RunnerConfig):
    """Settings of `python -m experiments.report`."""

    results_root: str = "results"
    """The folder of committed results that claims are decided by; the table and the page go there, too."""
    readme: str | None = None
    """A page whose short table of claims is renewed, between the two lines that mark it; null: none."""
    tracking: TrackingConfig = field(default_factory=no_tracking)

    def __post_init__(self) -> None:
        self.results_root = expanded(self.results_root)
        self.readme = None if self.readme is None else expanded(self.readme)
