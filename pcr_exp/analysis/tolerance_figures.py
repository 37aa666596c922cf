"""Two figures of what a task tolerates: every pair of groups, and the two ways of using a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.figure import (
    footer,
    named_line,
    new_figure,
    note,
    panel_title,
    panels,
    points_axis,
    same_limits,
    ticks_in_bytes,
)
from pcr_exp.analysis.marks import group_legend
from pcr_exp.analysis.style import INK, MUTED, color_in_script, group_marker, style
from pcr_exp.analysis.tables import percent, task_title
from pcr_exp.analysis.tolerance import Facts
from pcr_exp.measuring.tolerance.answer import TOLERATED
from pcr_exp.training.task import headline_called

WORDS = {"full": "used at all scans", "same": "used at the group trained on"}
MARKED = (1, 2, 5)
_CELL_IN, _AROUND_IN = 0.8, 1.9
"""Width of a cell with an interval, and what lies around all of them."""


def points(share: float) -> str:
    """0.01 -> `1 point`."""
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"


def title_of(facts: Facts) -> str:
    """Data, task and network."""
    return task_title(facts.dataset, facts.label, facts.model)


def subtitle_of(facts: Facts) -> str:
    """How it was measured."""
    script = "" if facts.scans == "default" else f"scan script {facts.scans}; "
    return script + (
        f"frozen features at {facts.image_size} px, linear classifier; n = {facts.num_images:,} images, "
        f"{facts.num_folds} folds; 95 % intervals"
    )


def draw_matrix(matrix: pd.DataFrame, facts: Facts) -> Figure:
    """Points lost to all scans, by the group trained on (rows) and the group used at (columns).

    Below each the ends of its 95 % interval.
    """
    groups = list(facts.groups)
    names = ["loss", "loss_low", "loss_high"]
    pairs = 100 * matrix.pivot_table(index="train_group", columns="test_group", values=names)
    values, lows, highs = (pairs[name].loc[groups, groups].to_numpy() for name in names)
    with style():
        figure = new_figure(_AROUND_IN + _CELL_IN * len(groups), _AROUND_IN + 0.72 * _CELL_IN * len(groups))
        ax = figure.subplots()
        reach = max(1.0, float(np.abs(values).max()))
        image = ax.imshow(values, cmap="BrBG_r", vmin=-reach, vmax=reach, aspect="auto")
        for i, j in np.ndindex(values.shape):
            color = "white" if abs(values[i, j]) > 0.6 * reach else INK
            look = {"ha": "center", "va": "center", "color": color}
            note(ax, f"{values[i, j]:.1f}", (j, i), (0, 5), fontsize=8, **look)
            if lows[i, j] < highs[i, j]:
                note(ax, f"{lows[i, j]:.1f} to {highs[i, j]:.1f}", (j, i), (0, -6), fontsize=6, **look)
        ax.set_xticks(range(len(groups)), [str(group) for group in groups])
        ax.set_yticks(range(len(groups)), [str(group) for group in groups])
        ax.grid(visible=False)
        ax.set_xlabel("used at scan group")
        ax.set_ylabel("trained at scan group")
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_label(f"points of {headline_called(facts.headline).words} lost")
        panel_title(ax, title_of(facts), f"{subtitle_of(facts)} below")
    return figure


def draw_curves(answers: pd.DataFrame, facts: Facts) -> Figure:
    """Points against all scans over bytes per image, a panel for each way of using the model.

    Bars are paired 95 % intervals, so a group whose bar lies above the margin's line will do. The axis shows
    one point beside 0 however many the first groups lose (`points_axis`).
    """
    with style():
        figure, axes = panels(len(WORDS))
        for ax, (deployment, words) in zip(axes, WORDS.items(), strict=True):
            _draw_curve(ax, answers[answers["deployment"] == deployment], facts)
            panel_title(
                ax,
                f"Trained at a group, {words}",
                f"{subtitle_of(facts)} of the difference to all scans; filled: within the margin",
            )
        same_limits(axes, [""] * len(axes))
        for ax in axes:
            points_axis(ax, "y")
        footer(figure, _score_words(answers, facts))
    return figure


def _score_words(answers: pd.DataFrame, facts: Facts) -> str:
    """The score that the differences are to, and what guessing reaches."""
    whole = answers.loc[answers["train_group"] == max(facts.groups), "score"].iloc[0]
    words = headline_called(facts.headline).words
    return f"{words} at all scans {percent(whole)}, guessing {percent(facts.chance_level)}"


def _draw_curve(ax: Axes, rows: pd.DataFrame, facts: Facts) -> None:
    highest = max(facts.groups)
    ax.set_xscale("log")
    ax.plot(rows["image_bytes"], -100 * rows["loss"], color=MUTED, linewidth=1, zorder=2)
    for row in rows.to_dict("records"):
        group, place = row["train_group"], row["image_bytes"]
        color = color_in_script(group, facts.scans)
        ends = (-100 * row["loss_high"], -100 * row["loss_low"])
        ax.vlines(place, *ends, color=color, linewidth=2.2, alpha=0.6)
        fill = color if row["verdict"] == TOLERATED else "white"
        ax.plot(place, -100 * row["loss"], group_marker(group), color=color, markerfacecolor=fill, zorder=4)
    ax.axhline(0, color=INK, linewidth=0.8, zorder=1)
    named_line(ax, -100 * facts.margin, f"- {points(facts.margin)}", fontsize=7)
    group_legend(ax, [group for group in facts.groups if group in MARKED or group == highest], facts.scans)
    ticks_in_bytes(ax.xaxis, float(rows["image_bytes"].min()) / 1.1, float(rows["image_bytes"].max()) * 1.1)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel(f"points of {headline_called(facts.headline).words}\nagainst all scans")
