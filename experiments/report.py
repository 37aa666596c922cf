"""Check the papers' claims against the committed results. See `--help`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pcr_exp.cli.launch import launch
from pcr_exp.config.check import PATH, check_fields
from pcr_exp.config.commands import RunnerConfig, TrackingConfig, no_tracking
from pcr_exp.errors import RunError

if TYPE_CHECKING:
    from pcr_exp.cli.dry_run import Planned


@dataclass(kw_only=True, slots=True)
class ReportConfig(RunnerConfig):
    """Settings of `python -m experiments.report`."""

    results_root: Annotated[str, PATH] = "results"
    """Folder of committed results that decide the claims; the table and the page are written there too."""
    readme: Annotated[str | None, PATH] = None
    """Page whose short table of claims is updated, between its two marker lines; null: none."""
    tracking: TrackingConfig = field(default_factory=no_tracking)

    def __post_init__(self) -> None:
        check_fields(self)


def report(config: ReportConfig) -> str:
    """Write claims.csv and claims.md to the folder of results and update its pages. Return "finished".

    Raises:
        ConfigError: claims.yaml has an unknown key or value, or lacks a key.
        RunError: the folder, a file or rows for a claim, marker lines or values in numerics.csv are missing.
    """
    from experiments.claims.page import write_claims
    from experiments.results.measured_under import write_measured
    from pcr_exp.cli.terminal import show, track_files

    results = Path(config.results_root)
    if not results.is_dir():
        raise RunError(
            f"results_root={results}: there is no such folder. Claims are decided by committed results: "
            "wanted the folder `results` of a checkout of the repository."
        )
    readme = None if config.readme is None else Path(config.readme)
    files = write_claims(results, readme)
    write_measured(results, *([] if readme is None else [readme]))
    track_files(config.tracking, "report", results, asdict(config), files)
    show(files)
    return "finished"


def plan(config: ReportConfig) -> Planned:
    """Return what it would read and rewrite."""
    from pcr_exp.cli.dry_run import Planned

    renewed = f", and the table in {config.readme}" if config.readme else ""
    return Planned([f"claims.csv and claims.md from the files below {config.results_root}{renewed}"])


if __name__ == "__main__":
    launch(report, "report", ReportConfig, plan)
