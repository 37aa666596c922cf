"""Hold what the papers claim against the committed results. See `--help`."""

from pcr_exp.config.runners import ReportConfig
from pcr_exp.runners.launch import launch


def report(config: ReportConfig) -> str:
    """Write the table and the page of claims; returns "finished"."""
    from pcr_exp.runners.studies import report as study

    return study.report(config)


def main() -> None:
    """Run it as the command line says."""
    launch(report, "report", ReportConfig)
