"""Measure MS-SSIM, SSIM and bytes per scan group; draw them. See `--help`."""

from pcr_exp.cli.launch import launch
from pcr_exp.config.measuring import QualityConfig


def quality(config: QualityConfig) -> str:
    """Measure one split of one dataset and draw it; returns "finished"."""
    from pcr_exp.cli.studies import quality as study

    return study.quality(config)


def main() -> None:
    """Run it as the command line says."""
    launch(quality, "quality", QualityConfig)
