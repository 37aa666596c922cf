"""Accuracy against time and against epochs, a curve per scan level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pcr_exp.analysis.core.cells import kilobytes
from pcr_exp.analysis.core.figure import accuracy_axis, guessing_lines, panel_title, panels, target_line
from pcr_exp.analysis.core.look import (
    scan_color,
    scan_dashes,
    scan_marker,
    scan_order,
    short_scan_label,
    style,
)
from pcr_exp.analysis.core.runs_table import GROUP_KEYS
from pcr_exp.analysis.scans.table import one_run_per_seed


def draw_scan_levels(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """`y` against `x` for every scan level: one thin line per run, one thick line for their mean.

    The mean of both is taken at each epoch that all seeds of the level have evaluated; a level's legend entry
    gives the mean bytes that it reads per image, and says so where it is of one run among means of more.
    """
    most = rows.groupby("scan")["run_id"].nunique().max()
    for order, scan in enumerate(scan_order(rows["scan"])):
        level = rows[rows["scan"] == scan]
        # The dashed baseline lies on top: a scan level that coincides with it shows through its gaps.
        look: dict[str, Any] = {
            "color": scan_color(scan),
            "linestyle": scan_dashes(scan),
            "zorder": 4 - order / 20,
        }
        alone = " · n = 1" if level["run_id"].nunique() == 1 < most else ""
        if level["run_id"].nunique() > 1:
            for _, run in level.groupby("run_id"):
                ax.plot(run[x], run[y], **{**look, "linewidth": 0.8, "alpha": 0.4, "linestyle": "-"})
        mean = mean_over_seeds(level, x, y)
        ax.plot(
            mean[x],
            mean[y],
            marker=scan_marker(scan),
            markevery=max(1, len(mean) // 8),
            markeredgecolor="white",
            markeredgewidth=0.7,
            label=f"{short_scan_label(scan)} · {kilobytes(level['mean_image_bytes'].mean())}{alone}",
            **look,
        )


def mean_over_seeds(level: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean x and y per epoch, over the epochs that every run of the level has."""
    num_runs = level["run_id"].nunique()
    by_epoch = level.groupby("epoch")
    mean = by_epoch[sorted({x, y} - {"epoch"})].mean().reset_index()
    return mean[mean["epoch"].map(by_epoch["run_id"].nunique()) == num_runs]


MAX_INSIDE = 6
"""Scan levels whose legend has room within its panel."""
SECONDS_LABEL = "training + data wait (s)"


def draw_time_to_accuracy(curves: pd.DataFrame) -> Figure:
    """Time to accuracy of evaluation rows (`curves.eval_curves`), one panel per dataset, label and model.

    x is train_s + wait_s + probe_s: evaluation is off the clock. Runs whose seconds may not be said are left
    out (`with_seconds`); there must be others.
    """
    return draw_accuracy(with_seconds(curves), "seconds", SECONDS_LABEL)


def with_seconds(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows of `eval_curves` whose time may be said, with it in a column `seconds`."""
    timed = curves[curves["no_seconds"] == ""]
    return timed.assign(seconds=timed["train_s"] + timed["wait_s"] + timed["probe_s"])


def draw_accuracy(curves: pd.DataFrame, x: str, x_label: str) -> Figure:
    """Validation top-1 against the column `x`, with each panel's target and what guessing reaches."""
    with style():
        facts = list(per_panel(curves))
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            draw_accuracy_panel(ax, rows, x, x_label)
            panel_title(ax, title, subtitle)
    return figure


def draw_accuracy_panel(ax: Axes, rows: pd.DataFrame, x: str, x_label: str) -> None:
    """One panel of `draw_accuracy`, without its title."""
    draw_scan_levels(ax, rows, x, "val_top1")
    for target in sorted(rows["target_top1"].unique()):
        target_line(ax, target)
    guessing_lines(ax, rows)
    ax.set_xlim(left=0)
    ax.set_xlabel(x_label)
    accuracy_axis(ax)
    look: dict[str, Any] = {"title": "scan · bytes per image", "title_fontsize": 8.5, "alignment": "left"}
    if rows["scan"].nunique() <= MAX_INSIDE:
        ax.legend(loc="best", **look)
        return
    # More would lie on the curves. Nothing is below a single row of panels: they keep their height.
    legend = ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, **look)
    grid = ax.get_gridspec()
    legend.set_in_layout(grid is not None and grid.nrows > 1)


def draw_accuracy_vs_epoch(curves: pd.DataFrame) -> Figure:
    """Validation top-1 against completed epochs (`curves.eval_curves`), same panels as time to accuracy."""
    figure = draw_accuracy(one_run_per_seed(curves), "epoch", "epochs completed")
    for ax in figure.axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def draw_efficiency(curves: pd.DataFrame) -> Figure:
    """Two panels per dataset, label and model of `with_seconds`: top-1 against seconds and against epochs."""
    with style():
        facts = list(per_panel(curves))
        figure, axes = panels(2 * len(facts), max_columns=2)
        for i, (title, subtitle, rows) in enumerate(facts):
            against_time, against_epochs = axes[2 * i], axes[2 * i + 1]
            draw_accuracy_panel(against_time, rows, "seconds", SECONDS_LABEL)
            draw_accuracy_panel(against_epochs, rows, "epoch", "epochs completed")
            against_epochs.xaxis.set_major_locator(MaxNLocator(integer=True))
            against_epochs.sharey(against_time)
            legend = against_epochs.get_legend()
            assert legend is not None
            legend.remove()  # that of the panel beside it
            panel_title(against_time, title, subtitle)
            panel_title(against_epochs, "the same, per epoch", "statistical efficiency")
    return figure


def per_panel(curves: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(title, subtitle, rows) of every group of comparable runs, in the order of GROUP_KEYS.

    Runs of unlike `timing`, if the rows have it, are panels of their own. The setting and the hardware are
    named where two panels differ in nothing else.
    """
    *named, _ = GROUP_KEYS
    timed = curves if "timing" in curves else curves.assign(timing="")
    for (dataset, label, model, storage, setting, timing), rows in timed.groupby(
        [*GROUP_KEYS, "timing"], sort=True
    ):
        num_seeds = rows.groupby("scan")["seed"].nunique()
        low, high = num_seeds.min(), num_seeds.max()
        seeds = f"n = {low} seed{'s' if low != 1 else ''}" if low == high else f"n = {low} to {high} seeds"
        facts = [f"storage {storage}", f"{seeds} per scan level"]
        alike = (curves[named] == [dataset, label, model, storage]).all(axis=1)
        if curves.loc[alike, "setting"].nunique() > 1:
            facts.append(f"setting {setting}")
        if timed.loc[timed["setting"] == setting, "timing"].nunique() > 1:
            facts.append(f"{' / '.join(sorted(set(rows['hardware'])))}, timing {timing}")
        yield f"{dataset} · {label} · {model}", ", ".join(facts), rows
