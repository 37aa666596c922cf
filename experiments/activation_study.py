"""Measure what compressed activations cost and save on one batch; draw it. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.runners import ActivationStudyConfig


def activation_study(config: ActivationStudyConfig) -> str:
    """Measure, write tables and figures; returns "finished"."""
    from experiments.studies import activation_study as study

    return study.activation_study(config)


if __name__ == "__main__":
    launch(activation_study, "activation_study", ActivationStudyConfig)
