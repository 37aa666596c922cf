"""Measure what compressed activations cost and save on one batch; draw it. See `--help`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.comet.settings import ActivationStudyConfig
from pcr_exp.cli.launch import launch

if TYPE_CHECKING:
    from pcr_exp.cli.dry_run import Planned


def activation_study(config: ActivationStudyConfig) -> str:
    """Measure, write tables and figures; returns "finished"."""
    from experiments.comet import study

    return study.activation_study(config)


def plan_activations(config: ActivationStudyConfig) -> Planned:
    """One batch."""
    from pcr_exp.cli.dry_run import Planned

    sizes = len(config.bounds) * len(config.batch_sizes)
    return Planned(
        [f"one batch of {config.training.batch_size}, {sizes} bounds and sizes, into {config.out}"]
    )


def main() -> None:
    """Run it as the command line says."""
    launch(activation_study, "activation_study", ActivationStudyConfig, plan_activations)


if __name__ == "__main__":
    main()
