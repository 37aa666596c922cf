"""The figures of one run, drawn from its own files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from pcr_exp.analysis.figures.save import save_figure
from pcr_exp.analysis.figures.training_curve import draw_training_curve
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import read_rows


def draw_run(folder: Path) -> dict[str, Path]:
    """Draw a run's training curve beside its rows, as `training_curve.{pdf,png,csv}`.

    Returns:
        The PNG of each figure by its name.

    Raises:
        RunError: the run's rows are damaged.
    """
    directory = RunDirectory(folder)
    config = OmegaConf.load(directory.config_path)
    rows = pd.DataFrame(read_rows(directory.rows_path))
    title = f"{config.dataset.name} · {config.dataset.label} · {config.model.name}"
    figure = draw_training_curve(rows, title, config.scan.name, config.dataset.target_top1)
    paths = save_figure(figure, rows, folder, "training_curve")
    return {"training_curve": next(path for path in paths if path.suffix == ".png")}
