"""One run at a glance, drawn from its own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.caption import of_runs
from pcr_exp.analysis.figure import BELOW, accuracy_axis, panel_title, panels, save_figure, target_line
from pcr_exp.analysis.frame import LEVEL, run_frame, seconds_of
from pcr_exp.analysis.marks import chance_lines
from pcr_exp.analysis.policies import draw_trace
from pcr_exp.analysis.primary_metric import scored
from pcr_exp.analysis.runs import Run
from pcr_exp.analysis.style import INK, level_of, style
from pcr_exp.analysis.tables import task_title, with_unit
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import read_rows
from pcr_exp.training.columns import with_declared

COLUMNS = ["kind", "train_s", "wait_s", "probe_s", "train_loss", "val_loss", "num_val", "eval_group"]


def draw_run(folder: Path) -> dict[str, Path]:
    """Draw a run's training curve into its folder, as `training_curve.{pdf,png,csv}`.

    If a scan policy decided anything, `policy_trace.{pdf,png,csv}` is drawn too.

    Returns:
        The PNG of each figure by its name.

    Raises:
        RunError: the run's rows are damaged.
    """
    directory = RunDirectory(folder)
    config = directory.config()
    manifest = directory.manifest()
    assert manifest is not None  # the folder holds a run
    rows = read_rows(directory.rows_path, with_declared(manifest.columns))
    frame = run_frame([Run(manifest, config, [scored(row, manifest.headline) for row in rows])])
    measured = pd.DataFrame([row for row in rows if row["kind"] != "policy"])
    draw = partial(draw_training_curve, run=frame.iloc[0].to_dict())
    caption = of_runs(frame, "Loss and accuracy over time")
    drawn = {"training_curve": save_figure(draw, measured, folder, "training_curve", caption)}
    chosen = replace(caption, shows="What the policy chose")
    if trace := draw_trace(frame, chosen, folder, "policy_trace"):
        drawn["policy_trace"] = trace
    return {name: next(path for path in paths if path.suffix == ".png") for name, paths in drawn.items()}


def draw_training_curve(rows: pd.DataFrame, run: Mapping[Any, Any]) -> Figure:
    """Draw losses (left) and the primary metric (right) against train_s + wait_s + probe_s.

    Args:
        rows: A run's rows of the kinds `train` and `eval`, as logged or as read by `read_runs`.
        run: Its row of `run_frame`.
    """
    score = "val_score"
    with style():
        figure, (losses, accuracy) = panels(2)
        # A run without an evaluation lacks some columns.
        rows = rows.rename(columns={f"val_{run['headline']}": score}).reindex(columns=[*COLUMNS, score])
        rows["seconds"] = seconds_of(rows)
        train, evaluated = (rows[rows["kind"] == kind] for kind in ("train", "eval"))
        evaluated = evaluated[evaluated["eval_group"].fillna("full") == "full"]
        scan, seconds = level_of({key: run[key] for key in LEVEL}), evaluated["seconds"]
        losses.plot(train["seconds"], train["train_loss"], color=scan.color, linewidth=1.2, label="training")
        look: dict[str, Any] = {"color": INK, "marker": "o", "markersize": 4}
        losses.plot(seconds, evaluated["val_loss"], label="validation", **look)
        losses.set_ylabel("loss")
        losses.legend(**BELOW, ncols=2)
        look = {"color": scan.color, "marker": scan.marker, "markeredgecolor": "white"}
        accuracy.plot(seconds, evaluated[score], **look)
        target_line(accuracy, run["target_score"])
        facts = pd.DataFrame([run])
        chance_lines(accuracy, facts)
        accuracy_axis(accuracy, facts)
        for ax in (losses, accuracy):
            ax.set_xlim(left=0)
            ax.set_xlabel(with_unit("training + data wait + probes", "train_s"))
        panel_title(losses, task_title(run["dataset"], run["label"], run["model"]), "n = 1 run")
        num_val = int(evaluated["num_val"].max()) if len(evaluated) else 0
        panel_title(accuracy, " ", f"scan {scan.label}, n = {num_val} validation images")
    return figure
