"""Two figures of what a task tolerates: every pair of groups, and the two ways of using a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.cells import task_title
from pcr_exp.analysis.core.figure import (
    named_line,
    new_figure,
    panel_title,
    panels,
    percent_axis,
    ticks_in_bytes,
)
from pcr_exp.analysis.core.group_legend import group_legend
from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.look import INK, MUTED, style
from pcr_exp.analysis.core.scan_colors import color_in_script, group_marker
from pcr_exp.analysis.tolerance.table import Facts
from pcr_exp.measuring.tolerance.answer import TOLERATED
from pcr_exp.training.task import headline_called

WORDS = {"full": "used at all scans", "same": "used at the group trained on"}
MARKED = (1, 2, 5)


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
    """Points lost to all scans, by the group trained on (rows) and the group used at (columns)."""
    groups = list(facts.groups)
    points = matrix.pivot_table(index="train_group", columns="test_group", values="loss").loc[groups, groups]
    values = 100 * points.to_numpy()
    with style():
        figure = new_figure(6.4, 5.6)
        ax = figure.subplots()
        reach = max(1.0, float(np.abs(values).max()))
        image = ax.imshow(values, cmap="BrBG_r", vmin=-reach, vmax=reach)
        for i, j in np.ndindex(values.shape):
            dark = abs(values[i, j]) > 0.6 * reach
            ax.annotate(
                f"{values[i, j]:.1f}",
                (j, i),
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if dark else INK,
            )
        ax.set_xticks(range(len(groups)), [str(group) for group in groups])
        ax.set_yticks(range(len(groups)), [str(group) for group in groups])
        ax.grid(visible=False)
        ax.set_xlabel("used at scan group")
        ax.set_ylabel("trained at scan group")
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_label(f"points of {headline_called(facts.headline).words} lost")
        panel_title(ax, title_of(facts), subtitle_of(facts))
    return figure


def draw_curves(answers: pd.DataFrame, facts: Facts) -> Figure:
    """The score over bytes per image, a panel for each way of using the model, with the margin's line.

    Bars are the paired 95 % intervals of what is lost, so a group whose bar lies above the line will do.
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
        low = min(ax.get_ylim()[0] for ax in axes)
        high = max(ax.get_ylim()[1] for ax in axes)
        for ax in axes:
            ax.set_ylim(low, high)
    return figure


def _draw_curve(ax: Axes, rows: pd.DataFrame, facts: Facts) -> None:
    highest = max(facts.groups)
    whole = float(rows.loc[rows["train_group"] == highest, "score"].iloc[0])
    ax.set_xscale("log")
    ax.plot(rows["image_bytes"], rows["score"], color=MUTED, linewidth=1, zorder=2)
    for row in rows.to_dict("records"):
        group, color = row["train_group"], color_in_script(row["train_group"], facts.scans)
        place = row["image_bytes"]
        ax.vlines(
            place, whole - row["loss_high"], whole - row["loss_low"], color=color, linewidth=2.2, alpha=0.6
        )
        fill = color if row["verdict"] == TOLERATED else "white"
        ax.plot(place, row["score"], group_marker(group), color=color, markerfacecolor=fill, zorder=4)
    named_line(ax, whole - facts.margin, f"all scans\n- {points(facts.margin)}", fontsize=7)
    guessing_lines(ax, rows.assign(majority_share=facts.majority_share, num_classes=facts.num_classes))
    group_legend(ax, [group for group in facts.groups if group in MARKED or group == highest], facts.scans)
    ticks_in_bytes(ax.xaxis, float(rows["image_bytes"].min()) / 1.1, float(rows["image_bytes"].max()) * 1.1)
    ax.set_xlabel("mean bytes per image (log scale)")
    ax.set_ylabel(headline_called(facts.headline).words)
    percent_axis(ax.yaxis)
