"""Ask which scan group a task tolerates, before any training. See `--help`."""

from pcr_exp.cli.launch import launch
from pcr_exp.config.measuring import ToleranceConfig


def tolerance(config: ToleranceConfig) -> str:
    """Measure one label of one dataset, and answer; returns "finished"."""
    from pcr_exp.cli.studies import tolerance as study

    return study.tolerance(config)


def main() -> None:
    """Run it as the command line says."""
    launch(tolerance, "tolerance", ToleranceConfig)
