"""Ask which scan group a task tolerates, before any training. See `--help`."""

from pcr_exp.config.tolerance import ToleranceConfig
from pcr_exp.runners.launch import launch


def tolerance(config: ToleranceConfig) -> str:
    """Measure one label of one dataset, and answer; returns "finished"."""
    from pcr_exp.runners.studies import tolerance as study

    return study.tolerance(config)


def main() -> None:
    """Run it as the command line says."""
    launch(tolerance, "tolerance", ToleranceConfig)
