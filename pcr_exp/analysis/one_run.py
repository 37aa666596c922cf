"""One run at a glance, drawn from its own files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.caption import of_runs
from pcr_exp.analysis.figure import BELOW, accuracy_axis, panel_title, panels, save_figure, target_line
from pcr_exp.analysis.frame import has_policy, run_frame, seconds_of
from pcr_exp.analysis.marks import guessing_lines
from pcr_exp.analysis.policies import draw_trace
from pcr_exp.analysis.primary_metric import scored
from pcr_exp.analysis.runs import Run
from pcr_exp.analysis.style import INK, ScanLevel, style
from pcr_exp.analysis.tables import task_title, with_unit
from pcr_exp.config.describe import scan_label, script_in
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import read_rows
from pcr_exp.training.task import TOP1

COLUMNS = ["kind", "train_s", "wait_s", "probe_s", "train_loss", "val_loss", "num_val", "eval_group"]


def draw_run(folder: Path) -> dict[str, Path]:
    """Draw a run's training curve beside its rows, as `training_curve.{pdf,png,csv}`.

    If a scan policy decided anything, `policy_trace.{pdf,png,csv}` too.

    Returns:
        The PNG of each figure by its name.

    Raises:
        RunError: the run's rows are damaged.
    """
    directory = RunDirectory(folder)
    config = directory.config()
    rows = read_rows(directory.rows_path)
    manifest = directory.manifest()
    assert manifest is not None  # there is a run
    run = Run(manifest, config, [scored(row, manifest.headline) for row in rows])
    title = task_title(run.dataset, manifest.label, manifest.model)
    scan = level_of_config(config["scan"], config.get("records"))
    measured = pd.DataFrame([row for row in rows if row["kind"] != "policy"])
    draw = partial(
        draw_training_curve,
        title=title,
        scan=scan,
        target=manifest.target,
        majority_share=manifest.majority_share,
        num_classes=manifest.num_classes,
        headline=manifest.headline,
    )
    frame = run_frame([run])
    caption = of_runs(frame, "Loss and accuracy over time")
    drawn = {"training_curve": save_figure(draw, measured, folder, "training_curve", caption)}
    chosen = replace(caption, shows="What the policy chose")
    if trace := draw_trace(frame, chosen, folder, "policy_trace"):
        drawn["policy_trace"] = trace
    return {name: next(path for path in paths if path.suffix == ".png") for name, paths in drawn.items()}


def draw_training_curve(
    rows: pd.DataFrame,
    title: str,
    scan: ScanLevel,
    target: float,
    majority_share: float | None = None,
    num_classes: int | None = None,
    headline: str = TOP1.name,
) -> Figure:
    """Losses (left) and the headline (right) against train_s + wait_s + probe_s.

    `rows`: a run's rows, kinds `train` and `eval`, as logged or as `read_runs` reads them. What guessing
    reaches is drawn if it is known.
    """
    score = "val_score"
    with style():
        figure, (losses, accuracy) = panels(2)
        # A run that has not evaluated yet lacks some.
        rows = rows.rename(columns={f"val_{headline}": score}).reindex(columns=[*COLUMNS, score])
        rows["seconds"] = seconds_of(rows)
        train, evaluated = (rows[rows["kind"] == kind] for kind in ("train", "eval"))
        evaluated = evaluated[evaluated["eval_group"].fillna("full") == "full"]
        color = scan.color
        losses.plot(train["seconds"], train["train_loss"], color=color, linewidth=1.2, label="training")
        losses.plot(
            evaluated["seconds"],
            evaluated["val_loss"],
            color=INK,
            marker="o",
            markersize=4,
            label="validation",
        )
        losses.set_ylabel("loss (cross-entropy)")
        losses.legend(**BELOW, ncols=2)
        accuracy.plot(
            evaluated["seconds"], evaluated[score], color=color, marker=scan.marker, markeredgecolor="white"
        )
        target_line(accuracy, target)
        known = {"majority_share": majority_share, "num_classes": num_classes, "headline": headline}
        facts = pd.DataFrame([known])
        guessing_lines(accuracy, facts)
        accuracy_axis(accuracy, facts)
        for ax in (losses, accuracy):
            ax.set_xlim(left=0)
            ax.set_xlabel(with_unit("training + data wait", "train_s"))
        panel_title(losses, title, "n = 1 run")
        panel_title(accuracy, " ", f"scan {scan.label}, n = {_num_val(evaluated)} validation images")
    return figure


def level_of_config(scan: Mapping[str, Any], records: Mapping[str, Any] | None = None) -> ScanLevel:
    """The scan level of a run's configuration: of its groups `scan` and `records`."""
    group = math.nan if has_policy({"scan": scan}) else scan["group"]
    label = scan_label(scan, records)
    return ScanLevel(label, scan["encoding"], group, script_in(label))


def _num_val(evaluated: pd.DataFrame) -> int:
    return int(evaluated["num_val"].max()) if len(evaluated) else 0
