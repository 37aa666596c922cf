"""Hold what the papers claim against the committed results. See `--help`."""

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
    """The folder of committed results that claims are decided by; the table and the page go there, too."""
    readme: Annotated[str | None, PATH] = None
    """A page whose short table of claims is renewed, between the two lines that mark it; null: none."""
    tracking: TrackingConfig = field(default_factory=no_tracking)

    def __post_init__(self) -> None:
        check_fields(self)


def report(config: ReportConfig) -> str:
    """Write claims.csv and claims.md into the folder of results, and renew its pages; returns "finished".

    Raises:
        ConfigError: claims.yaml has something that is not known.
        RunError: there is no such folder, or a page or numerics.csv lacks what it must say.
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
    """What it would read, and write anew."""
    from pcr_exp.cli.dry_run import Planned

    renewed = f", and the table in {config.readme}" if config.readme else ""
    return Planned([f"claims.csv and claims.md from the files below {config.results_root}{renewed}"])


if __name__ == "__main__":
    launch(report, "report", ReportConfig, plan)
