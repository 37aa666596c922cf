"""Measure what only a GPU can show, in three parts of minutes each. See `--help`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.gpu.settings import GpuConfig
from pcr_exp.cli.launch import launch

if TYPE_CHECKING:
    from pcr_exp.cli.dry_run import Planned


def gpu(config: GpuConfig) -> str:
    """One part: measure, write its rows and, if wanted, an archive; returns "finished"."""
    from experiments.gpu import parts as study

    return study.gpu(config)


def plan_gpu(config: GpuConfig) -> Planned:
    """One part, which begins nothing new after its time."""
    from pcr_exp.cli.dry_run import Planned

    return Planned([f"part {config.part}, into {config.out}"], {"seconds": config.max_s})


def main() -> None:
    """Run it as the command line says."""
    launch(gpu, "gpu", GpuConfig, plan_gpu)


if __name__ == "__main__":
    main()
