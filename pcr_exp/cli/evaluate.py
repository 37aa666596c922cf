"""Evaluate trained networks at scan groups and decode modes. See `--help`."""

from pcr_exp.cli.launch import launch
from pcr_exp.config.measuring import EvaluateConfig


def evaluate(config: EvaluateConfig) -> str:
    """Score every image of a split at every level; returns "finished"."""
    from pcr_exp.cli.studies import evaluate as study

    return study.evaluate(config)


def main() -> None:
    """Run it as the command line says."""
    launch(evaluate, "evaluate", EvaluateConfig)
