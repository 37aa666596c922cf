"""Ask which scan group a task tolerates, before any training. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.tolerance import ToleranceConfig


def tolerance(config: ToleranceConfig) -> str:
    """Measure one label of one dataset, and answer; returns "finished"."""
    from experiments.studies import tolerance as study

    return study.tolerance(config)


if __name__ == "__main__":
    launch(tolerance, "tolerance", ToleranceConfig)
