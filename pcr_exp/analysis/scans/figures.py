"""Scan levels in figures: accuracy against time and epochs, and what each run took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pcr_exp.analysis.core.cells import kilobytes, with_unit
from pcr_exp.analysis.core.figure import (
    PANEL_WIDTH_IN,
    accuracy_axis,
    alone_mark,
    guessing_lines,
    new_figure,
    panel_title,
    panels,
    target_line,
)
from pcr_exp.analysis.core.headline import headline_of
from pcr_exp.analysis.core.look import (
    MUTED,
    scan_levels,
    style,
)
from pcr_exp.analysis.core.runs_table import GROUP_KEYS, per_setting, seconds_of
from pcr_exp.analysis.scans.table import one_run_per_seed
from pcr_exp.system import MIB

MAX_INSIDE = 6
"""Scan levels whose legend has room within its panel."""
SECONDS_LABEL = with_unit("training + data wait", "train_s")
MEASURES = {
    "time_to_target_s": "seconds to the target",
    "all_s": "seconds for all epochs",
    "record_mib": "MiB of records read, probes included",
    "final_score": "last validation {headline}",
}
_LINE_IN, _MARGIN_IN = 0.27, 1.25


def draw_scan_levels(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """`y` against `x` for every scan level: one thin line per run, one thick line for their mean.

    The mean of both is taken at each epoch that all seeds of the level have evaluated; a level's legend entry
    gives the mean bytes that it reads per image, and says so where it is of one run among means of more.
    """
    most = rows.groupby("scan")["run_id"].nunique().max()
    for order, (level, runs) in enumerate(scan_levels(rows)):
        # The dashed baseline lies on top: a scan level that coincides with it shows through its gaps.
        look: dict[str, Any] = {
            "color": level.color,
            "linestyle": level.dashes,
            "zorder": 4 - order / 20,
        }
        num_runs = runs["run_id"].nunique()
        alone = " · n = 1" if num_runs == 1 < most else ""
        if num_runs > 1:
            for _, run in runs.groupby("run_id"):
                ax.plot(run[x], run[y], **{**look, "linewidth": 0.8, "alpha": 0.4, "linestyle": "-"})
        mean = mean_over_seeds(runs, x, y)
        ax.plot(
            mean[x],
            mean[y],
            marker=level.marker,
            markevery=max(1, len(mean) // 8),
            markeredgecolor="white",
            markeredgewidth=0.7,
            label=f"{level.short_words} · {kilobytes(runs['mean_image_bytes'].mean())}{alone}",
            **look,
        )


def mean_over_seeds(level: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean x and y per epoch, over the epochs that every run of the level has."""
    num_runs = level["run_id"].nunique()
    by_epoch = level.groupby("epoch")
    mean = by_epoch[sorted({x, y} - {"epoch"})].mean().reset_index()
    return mean[mean["epoch"].map(by_epoch["run_id"].nunique()) == num_runs]


def draw_time_to_accuracy(curves: pd.DataFrame) -> Figure:
    """Time to accuracy of evaluation rows (`eval_curves`), one panel per dataset, label and model.

    x is train_s + wait_s + probe_s: evaluation is off the clock. Runs whose seconds may not be said are left
    out (`with_seconds`); there must be others.
    """
    return draw_accuracy(with_seconds(curves), "seconds", SECONDS_LABEL)


def with_seconds(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows of `eval_curves` whose time may be said, with it in a column `seconds`."""
    timed = curves[curves["no_seconds"] == ""]
    return timed.assign(seconds=seconds_of(timed))


def draw_accuracy(curves: pd.DataFrame, x: str, x_label: str) -> Figure:
    """Validation score against the column `x`, with each panel's target and what guessing reaches."""
    with style():
        facts = list(per_panel(curves))
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            draw_accuracy_panel(ax, rows, x, x_label)
            panel_title(ax, title, subtitle)
    return figure


def draw_accuracy_panel(ax: Axes, rows: pd.DataFrame, x: str, x_label: str) -> None:
    """One panel of `draw_accuracy`, without its title."""
    draw_scan_levels(ax, rows, x, "val_score")
    for target in sorted(rows["target_score"].unique()):
        target_line(ax, target)
    guessing_lines(ax, rows)
    ax.set_xlim(left=0)
    ax.set_xlabel(x_label)
    accuracy_axis(ax, rows)
    look: dict[str, Any] = {"title": "scan · bytes per image", "title_fontsize": 8.5, "alignment": "left"}
    if rows["scan"].nunique() <= MAX_INSIDE:
        ax.legend(loc="best", **look)
        return
    # More would lie on the curves. Nothing is below a single row of panels: they keep their height.
    legend = ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, **look)
    grid = ax.get_gridspec()
    legend.set_in_layout(grid is not None and grid.nrows > 1)


def draw_accuracy_vs_epoch(curves: pd.DataFrame) -> Figure:
    """Validation score against completed epochs (`eval_curves`), same panels as time to accuracy."""
    figure = draw_accuracy(one_run_per_seed(curves), "epoch", "epochs completed")
    for ax in figure.axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def draw_efficiency(curves: pd.DataFrame) -> Figure:
    """Two panels per dataset, label and model of `with_seconds`: score against seconds and against epochs."""
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
    for title, group, rows in per_setting(timed, [*GROUP_KEYS, "timing"]):
        num_seeds = rows.groupby("scan")["seed"].nunique()
        low, high = num_seeds.min(), num_seeds.max()
        seeds = f"n = {low} seed{'s' if low != 1 else ''}" if low == high else f"n = {low} to {high} seeds"
        facts = [f"storage {group['storage']}", f"{seeds} per scan level"]
        alike = (curves[named] == [group[key] for key in named]).all(axis=1)
        if curves.loc[alike, "setting"].nunique() > 1:
            facts.append(f"setting {group['setting']}")
        if timed.loc[timed["setting"] == group["setting"], "timing"].nunique() > 1:
            facts.append(f"{' / '.join(sorted(set(rows['hardware'])))}, timing {group['timing']}")
        yield title, ", ".join(facts), rows


def with_totals(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows of `runs_frame` with two columns more.

    `all_s`: training, waiting and probing; NaN where no seconds may be said. `record_mib`: the MiB of records
    that training and probes read.
    """
    return runs.assign(
        all_s=seconds_of(runs).where(runs["no_seconds"] == ""),
        record_mib=(runs["record_bytes"] + runs["probe_bytes"]) / MIB,
    )


def draw_side_by_side(runs: pd.DataFrame) -> Figure:
    """Dots for runs, a bar for the mean of a level's seeds; MEASURES from left to right.

    Levels stand in the order of `scan_levels`, which also is that of the legends elsewhere. A level that has
    seeds which did not reach the target shows those that did, and says how many did not. Seconds that may not
    be said are not shown.

    Args:
        runs: `with_totals` of `runs_frame`; one row of panels per GROUP_KEYS.
    """
    with style():
        facts = list(per_panel(runs))
        heights = [_MARGIN_IN + _LINE_IN * rows["scan"].nunique() for _, _, rows in facts]
        figure = new_figure(0.62 * PANEL_WIDTH_IN * len(MEASURES), sum(heights))
        grid = figure.subplots(len(facts), len(MEASURES), squeeze=False, height_ratios=heights)
        for axes, (title, subtitle, rows) in zip(grid, facts, strict=True):
            for ax, (measure, label) in zip(axes, MEASURES.items(), strict=True):
                _draw_measure(ax, rows, measure)
                ax.set_xlabel(label.format(headline=headline_of(rows).words))
                if ax is not axes[0]:
                    ax.set_yticklabels([])
            axes[-1].xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            guessing_lines(axes[-1], rows, upright=True)
            words = f"{subtitle}; target {rows['target_score'].iloc[0]:.0%}"
            panel_title(axes[0], title, words, broken=False)
            panel_title(axes[1], " ", " ")  # keeps the height for the words above, which run into its width
            for text in (axes[0].title, *axes[0].texts[-1:]):
                text.set_in_layout(False)
    return figure


def _draw_measure(ax: Axes, rows: pd.DataFrame, measure: str) -> None:
    levels = scan_levels(rows)
    for place, (level, runs) in enumerate(levels):
        values, color = runs[measure], level.color
        there = values.dropna()
        look: dict[str, Any] = {"color": color, "markeredgecolor": "white", "zorder": 3}
        ax.plot(there, [place] * len(there), level.marker, **look)
        if len(there) == len(values):
            ax.plot([values.mean()] * 2, [place - 0.36, place + 0.36], color=color, linewidth=2.2, zorder=2)
        else:
            missed = _why_missing(runs, measure)
            ax.annotate(
                missed,
                (1, place),
                xycoords=("axes fraction", "data"),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
                color=MUTED,
            )
    most = max(len(runs) for _, runs in levels)
    names = [level.short_words + alone_mark(len(runs), most) for level, runs in levels]
    ax.set_yticks(range(len(levels)), names, fontsize=8.5)
    ax.set_ylim(len(levels) - 0.4, -0.6)
    if measure != "final_score":
        ax.set_xlim(left=0)


def _why_missing(level: pd.DataFrame, measure: str) -> str:
    if (level["no_seconds"] != "").any():
        return "not said"
    if measure == "time_to_target_s" and (level["no_target"] != "").any():
        return "target is guessed"
    missing = int(level[measure].isna().sum())
    return f"{missing} of {len(level)} did not"
