"""Measure what compressed activations cost and save on one batch; draw it. See `--help`."""

from pcr_exp.config.runners import ActivationStudyConfig
from pcr_exp.runners.launch import launch


def activation_study(config: ActivationStudyConfig) -> str:
    """Measure, write tables and figures; returns "finished"."""
    from pcr_exp.runners.studies import activation_study as study

    return study.activation_study(config)


def main() -> None:
    """Run it as the command line says."""
    launch(activation_study, "activation_study", ActivationStudyConfig)
