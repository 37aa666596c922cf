"""Measure MS-SSIM, SSIM and bytes per scan group; draw them. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.runners import QualityConfig


def quality(config: QualityConfig) -> str:
    """Measure one split of one dataset and draw it; returns "finished"."""
    from experiments.studies import quality as study

    return study.quality(config)


if __name__ == "__main__":
    launch(quality, "quality", QualityConfig)
