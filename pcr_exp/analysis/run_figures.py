"""The figures of one run, drawn from its own files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from pcr_exp.analysis.figures.policy_trace import draw_policy_trace
from pcr_exp.analysis.figures.save import save_figure
from pcr_exp.analysis.figures.training_curve import draw_training_curve
from pcr_exp.analysis.policy_trace import policy_trace
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import read_rows


def draw_run(folder: Path) -> dict[str, Path]:
    """Draw a run's training curve beside its rows, as `training_curve.{pdf,png,csv}`.

    If a scan policy decided anything, `policy_trace.{pdf,png,csv}` too.

    Returns:
        The PNG of each figure by its name.

    Raises:
        RunError: the run's rows are damaged.
    """
    directory = RunDirectory(folder)
    config = OmegaConf.load(directory.config_path)
    rows = read_rows(directory.rows_path)
    title = f"{config.dataset.name} · {config.dataset.label} · {config.model.name}"
    measured = pd.DataFrame([row for row in rows if row["kind"] != "policy"])
    curve = draw_training_curve(measured, title, config.scan.name, config.dataset.target_top1)
    drawn = {"training_curve": save_figure(curve, measured, folder, "training_curve")}
    trace = policy_trace(rows)
    if len(trace):
        end_s = rows[-1]["train_s"] + rows[-1]["wait_s"] + rows[-1]["probe_s"]
        figure = draw_policy_trace(trace, title, config.scan.name, end_s)
        drawn["policy_trace"] = save_figure(figure, trace, folder, "policy_trace")
    return {name: next(path for path in paths if path.suffix == ".png") for name, paths in drawn.items()}
