"""Measure and draw what compressed activations cost and save on one batch. See `--help`."""

from experiments.comet.settings import ActivationStudyConfig
from pcr_exp.cli.launch import launch
from pcr_exp.system.lazy import LazyFunction

_STUDY = "experiments.comet.study"

if __name__ == "__main__":
    task, plan = LazyFunction(_STUDY, "activation_study"), LazyFunction(_STUDY, "plan")
    launch(task, "activation_study", ActivationStudyConfig, plan)
