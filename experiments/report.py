"""Hold what the papers claim against the committed results. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.runners import ReportConfig


def report(config: ReportConfig) -> str:
    """Write the table and the page of claims; returns "finished"."""
    from experiments.studies import report as study

    return study.report(config)


if __name__ == "__main__":
    launch(report, "report", ReportConfig)
