"""Measure what only a GPU can show, in three parts of minutes each. See `--help`."""

from pcr_exp.config.gpu import GpuConfig
from pcr_exp.runners.launch import launch


def gpu(config: GpuConfig) -> str:
    """One part: measure, write its rows and, if wanted, an archive; returns "finished"."""
    from pcr_exp.runners.studies import gpu as study

    return study.gpu(config)


def main() -> None:
    """Run it as the command line says."""
    launch(gpu, "gpu", GpuConfig)
