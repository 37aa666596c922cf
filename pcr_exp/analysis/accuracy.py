"""Figures of scan levels: accuracy against time and against epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pcr_exp.analysis.distinguishing import READ_ON
from pcr_exp.analysis.figure import (
    BELOW,
    LEGEND_LINE_IN,
    MAX_CURVES,
    accuracy_axis,
    enlarge,
    footer,
    panel_title,
    panels,
    target_line,
)
from pcr_exp.analysis.frame import GROUP_KEYS, per_setting, seconds_of
from pcr_exp.analysis.marks import chance_lines
from pcr_exp.analysis.statistics import half_width, name_of_repeats, repeat_of
from pcr_exp.analysis.style import ScanLevel, names_of, scan_levels, style
from pcr_exp.analysis.summary import one_run_per_seed
from pcr_exp.analysis.tables import kilobytes, span, with_unit

SECONDS_LABEL = with_unit("training + data wait + probes", "train_s")
_SUBTITLE_LETTERS = 55
_ROOM, _LEAST_SPAN = 0.06, 0.05
"""Space above and below all values, as a share of their range; and the least range assumed."""
BANDS = "bands: 95 % intervals of means over seeds or folds"


def draw_scan_levels(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Draw `y` against `x` for every scan level: the mean over its runs, in a band of its 95 % interval.

    Means of x and y, and intervals of y (`statistics.half_width`), are taken at each epoch that all runs of
    the level have evaluated. A legend entry gives the level's mean bytes per image. It marks a single run if
    other levels have several. The axes show every run, but bands may leave them.
    """
    _show_all(ax, rows[y])
    most = rows.groupby("scan")["run_id"].nunique().max()
    levels = scan_levels(rows)
    names = names_of([level for level, _ in levels])
    for order, (level, runs) in enumerate(levels):
        # The dashed baseline lies on top: a scan level that coincides with it shows through its gaps.
        look: dict[str, Any] = {"color": level.color, "linestyle": level.dashes, "zorder": 4 - order / 20}
        num_runs = runs["run_id"].nunique()
        alone = " · n = 1" if num_runs == 1 < most else ""
        mean = mean_over_seeds(runs, x, y)
        if num_runs > 1:
            widths = mean["epoch"].map(runs.groupby("epoch")[y].agg(half_width))
            ax.fill_between(
                mean[x], mean[y] - widths, mean[y] + widths, color=level.color, alpha=0.13, linewidth=0
            )
        ax.plot(
            mean[x],
            mean[y],
            marker=level.marker,
            markevery=max(1, len(mean) // 8),
            markeredgecolor="white",
            markeredgewidth=0.7,
            label=f"{names[level]} · {kilobytes(_image_bytes(level, runs))}{alone}",
            **look,
        )


def _image_bytes(level: ScanLevel, runs: pd.DataFrame) -> float:
    """Return mean bytes read per image; if echoed repeats read further scans, these are included."""
    if READ_ON not in level.label:
        return float(runs["mean_image_bytes"].mean())
    ends = runs[runs["epoch"] == runs["epoch"].max()]
    return float((ends["record_bytes"] / ends["samples_seen"]).mean())


def _show_all(ax: Axes, values: pd.Series) -> None:
    """Set limits that contain all values, but not the bands around their means."""
    room = _ROOM * max(values.max() - values.min(), _LEAST_SPAN)
    ax.set_ylim(values.min() - room, values.max() + room)


def _hold_lines(ax: Axes) -> None:
    """Widen the limits to contain the lines of targets and chance levels, which are named in the margin."""
    heights = [
        float(np.asarray(line.get_ydata())[0])
        for line in ax.lines
        if line.get_transform() == ax.get_yaxis_transform(which="grid")
    ]
    low, high = ax.get_ylim()
    room = _ROOM * (high - low)
    ax.set_ylim(min([low, *(at - room for at in heights)]), max([high, *(at + room for at in heights)]))


def mean_over_seeds(level: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return mean x and y per epoch, over the epochs that every run of the level has."""
    num_runs = level["run_id"].nunique()
    by_epoch = level.groupby("epoch")
    mean = by_epoch[sorted({x, y} - {"epoch"})].mean().reset_index()
    return mean[mean["epoch"].map(by_epoch["run_id"].nunique()) == num_runs]


def draw_time_to_accuracy(curves: pd.DataFrame) -> Figure:
    """Draw time to accuracy from evaluation rows (`eval_curves`), one panel per dataset, label and model.

    x is train_s + wait_s + probe_s; evaluation time does not count. Runs whose seconds may not be shown are
    left out (`with_seconds`); at least one run must remain.
    """
    return draw_accuracy(with_seconds(curves), "seconds", SECONDS_LABEL)


def with_seconds(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `eval_curves` whose time may be shown, with a column `seconds`."""
    timed = curves[curves["timing_excluded_because"] == ""]
    return timed.assign(seconds=seconds_of(timed))


def draw_accuracy(curves: pd.DataFrame, x: str, x_label: str) -> Figure:
    """Draw the validation score against the column `x`, with each panel's target and chance level."""
    with style():
        facts = [part for panel in per_panel(curves) for part in few_levels(*panel)]
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            draw_accuracy_panel(ax, rows, x, x_label)
            panel_title(ax, title, subtitle)
        _finish(figure, facts)
    return figure


def few_levels(title: str, subtitle: str, rows: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Return a panel unchanged, or split more than MAX_CURVES scan levels into static levels and policies.

    Policies are drawn together with the baseline, at most MAX_CURVES curves in a panel.
    """
    levels = [level for level, _ in scan_levels(rows)]
    if len(levels) <= MAX_CURVES:
        return [(title, subtitle, rows)]
    static = [level.label for level in levels if not math.isnan(level.group)]
    policies = [level.label for level in levels if math.isnan(level.group)]
    parts = _even_parts(static, MAX_CURVES)
    parts += [static[:1] + part for part in _even_parts(policies, MAX_CURVES - 1)]
    return [(title, subtitle, rows[rows["scan"].isin(part)]) for part in parts if part]


def _even_parts(labels: list[str], most: int) -> list[list[str]]:
    """Split labels into the fewest parts of at most `most` labels, with about equal lengths."""
    step = -(-len(labels) // max(1, -(-len(labels) // most)))
    return [labels[i : i + step] for i in range(0, len(labels), step or 1)]


def _finish(figure: Figure, facts: list[tuple[str, str, pd.DataFrame]]) -> None:
    """Make space for the legends below panels, and explain bands in the footer."""
    num_rows = figure.axes[0].get_subplotspec().get_gridspec().nrows  # type: ignore[union-attr]
    in_legends = 1 + max(-(-rows["scan"].nunique() // 2) for _, _, rows in facts)
    lines = in_legends + max(len(subtitle) // _SUBTITLE_LETTERS for _, subtitle, _ in facts)
    enlarge(figure, height_in=num_rows * lines * LEGEND_LINE_IN)
    if any((rows.groupby("scan")["run_id"].nunique() > 1).any() for _, _, rows in facts):
        footer(figure, BANDS)


def draw_accuracy_panel(ax: Axes, rows: pd.DataFrame, x: str, x_label: str) -> None:
    """Draw one panel of `draw_accuracy`, without its title."""
    draw_scan_levels(ax, rows, x, "val_score")
    for target in sorted(rows["target_score"].unique()):
        target_line(ax, target)
    chance_lines(ax, rows)
    _hold_lines(ax)
    ax.set_xlim(left=0)
    ax.set_xlabel(x_label)
    accuracy_axis(ax, rows)
    look: dict[str, Any] = {"title": "scan · bytes per image", "alignment": "left"}
    ax.legend(**BELOW, ncols=2, **look)


def draw_accuracy_vs_epoch(curves: pd.DataFrame) -> Figure:
    """Draw validation score over completed epochs (`eval_curves`), in panels as for time to accuracy."""
    figure = draw_accuracy(one_run_per_seed(curves), "epoch", "epochs completed")
    for ax in figure.axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def per_panel(curves: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield (title, subtitle, rows) for every group of comparable runs, in the order of GROUP_KEYS.

    If rows have a column `timing`, runs that differ in it get separate panels. The subtitle names the setting
    and the hardware where two panels differ in nothing else; such panels are sorted by subtitle.
    """
    found = list(_panels_by_key(curves))
    *named, _ = GROUP_KEYS
    yield from sorted(found, key=lambda panel: [*panel[2][named].iloc[0], panel[1]])


def _panels_by_key(curves: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    *named, _ = GROUP_KEYS
    timed = curves if "timing" in curves else curves.assign(timing="")
    for title, group, rows in per_setting(timed, [*GROUP_KEYS, "timing"]):
        counts = rows.drop_duplicates(["scan", *repeat_of(rows)]).groupby("scan").size()
        repeats = f"{name_of_repeats(rows)}{'s' if counts.max() != 1 else ''}"
        facts = [f"storage {group['storage']}", f"n = {span(counts)} {repeats} per scan level"]
        alike = (curves[named] == [group[key] for key in named]).all(axis=1)
        if curves.loc[alike, "setting"].nunique() > 1:
            facts.append(_describe_setting(rows, group["setting"]))
        if timed.loc[timed["setting"] == group["setting"], "timing"].nunique() > 1:
            facts.append(f"{' / '.join(sorted(set(rows['hardware'])))}, timing {group['timing']}")
        px = f" · {rows['image_px'].iloc[0]} px" if "image_px" in rows else ""
        yield title + px, ", ".join(facts), rows


def _describe_setting(rows: pd.DataFrame, setting: str) -> str:
    """Return how the setting differs (`distinguishing.with_settings`), or its key without that column."""
    return str(rows["told_apart"].iloc[0]) if "told_apart" in rows else f"setting {setting}"
