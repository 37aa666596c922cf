"""Measure what only a GPU can show, in three parts of minutes each. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.gpu import GpuConfig


def gpu(config: GpuConfig) -> str:
    """One part: measure, write its rows and, if wanted, an archive; returns "finished"."""
    from experiments.studies import gpu as study

    return study.gpu(config)


if __name__ == "__main__":
    launch(gpu, "gpu", GpuConfig)
