"""Evaluate trained networks at scan groups and decode modes. See `--help`."""

from pcr_exp.config.evaluation import EvaluateConfig
from pcr_exp.runners.launch import launch


def evaluate(config: EvaluateConfig) -> str:
    """Score every image of a split at every level; returns "finished"."""
    from pcr_exp.runners.studies import evaluate as study

    return study.evaluate(config)


def main() -> None:
    """Run it as the command line says."""
    launch(evaluate, "evaluate", EvaluateConfig)
