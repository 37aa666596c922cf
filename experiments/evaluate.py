"""Evaluate trained networks at scan groups and decode modes. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.evaluation import EvaluateConfig


def evaluate(config: EvaluateConfig) -> str:
    """Score every image of a split at every level; returns "finished"."""
    from experiments.studies import evaluate as study

    return study.evaluate(config)


if __name__ == "__main__":
    launch(evaluate, "evaluate", EvaluateConfig)
