"""Hold what the papers claim against the committed results. See `--help`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.claims.settings import ReportConfig
from pcr_exp.cli.launch import launch

if TYPE_CHECKING:
    from pcr_exp.cli.dry_run import Planned


def report(config: ReportConfig) -> str:
    """Write the table and the page of claims; returns "finished"."""
    from experiments.claims import study

    return study.report(config)


def plan_report(config: ReportConfig) -> Planned:
    """What it would read, and write anew."""
    from pcr_exp.cli.dry_run import Planned

    renewed = f", and the table in {config.readme}" if config.readme else ""
    return Planned([f"claims.csv and claims.md from the files below {config.results_root}{renewed}"])


def main() -> None:
    """Run it as the command line says."""
    launch(report, "report", ReportConfig, plan_report)


if __name__ == "__main__":
    main()
