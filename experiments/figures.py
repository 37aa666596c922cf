"""Draw every figure for which runs or measurements are on disk, including the papers'. See `--help`."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.cli.launch import launch
from pcr_exp.config.commands import FiguresConfig
from pcr_exp.system.lazy import LazyFunction


def figures(config: FiguresConfig) -> str:
    """Write the figures and tables of the library and of the papers. Return "finished"."""
    from experiments.pages import PAGES
    from pcr_exp.cli.figures import figures as figures_of_every_user

    return figures_of_every_user(config, PAGES, project)


def project(config: FiguresConfig, timing_root: str) -> str:
    """Write projected_times.{csv,md} and the figure speedup_vs_bandwidth. Return the Markdown table."""
    from experiments.pcr.time_to_target_page import write_projected

    tables, _ = write_projected(config.runs_root, timing_root, config.targets_root, Path(config.out))
    return tables[1].read_text()


if __name__ == "__main__":
    launch(figures, "figures", FiguresConfig, LazyFunction("pcr_exp.cli.figures", "plan"))
