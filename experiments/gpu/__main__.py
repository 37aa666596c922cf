"""Measure what only a GPU can show, in three parts of minutes each. See `--help`."""

from experiments.gpu.settings import GpuConfig
from pcr_exp.cli.launch import launch
from pcr_exp.system.lazy import LazyFunction

_PARTS = "experiments.gpu.parts"

if __name__ == "__main__":
    launch(LazyFunction(_PARTS, "gpu"), "gpu", GpuConfig, LazyFunction(_PARTS, "plan"))
