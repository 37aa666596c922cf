"""What is lost at each scan group, with its interval; and the matrix of training and test levels."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.figure import (
    BELOW,
    PANEL_HEIGHT_IN,
    PANEL_WIDTH_IN,
    footer,
    new_figure,
    panel_title,
    panels,
    points_axis,
    same_limits,
)
from pcr_exp.analysis.core.look import INK, MUTED, ScanLevel, scan_words, style
from pcr_exp.analysis.core.scan_colors import group_color, group_marker

_APART = 0.09
"""Of the points of top-1 and top-5 at one group, to either side."""


def draw_losses(table: pd.DataFrame) -> Figure:
    """A panel per decode mode: points lost of top-1 (filled) and top-5 (hollow) at every scan group.

    Args:
        table: Of one network, as `table.level_table` makes it.
    """
    progressive = table[table["encoding"] == "pcr"]
    full = table[table["encoding"] == "baseline"].iloc[0]
    modes = sorted(progressive["decode"].unique())
    with style():
        figure, axes = panels(len(modes))
        for ax, mode in zip(axes, modes, strict=True):
            rows = progressive[progressive["decode"] == mode].sort_values("group")
            _draw_points(ax, rows)
            panel_title(ax, f"decode = {mode}")
        same_limits(axes, [""] * len(axes))
        for ax in axes:
            points_axis(ax, "y")
        axes[0].set_ylabel("points against the original images")
        axes[0].legend(**BELOW, ncols=3)
        footer(
            figure,
            f"original images: top-1 {100 * full['top1']:.1f}%, top-5 {100 * full['top5']:.1f}%; "
            "bars: 95 % intervals over pairs of one image",
        )
    return figure


def _draw_points(ax: Axes, rows: pd.DataFrame) -> None:
    places = range(len(rows))
    ax.axhline(0, color=INK, linewidth=1, zorder=1)
    for measure, side, words in (("top1", -_APART, "top-1"), ("top5", _APART, "top-5")):
        for place, row in zip(places, rows.to_dict("records"), strict=True):
            color = group_color(row["group"])
            ax.errorbar(
                [place + side],
                [100 * row[f"{measure}_difference"]],
                yerr=[100 * row[f"{measure}_ci95"]],
                color=color,
                marker=group_marker(row["group"]),
                markerfacecolor=color if measure == "top1" else "white",
                markersize=7,
                capsize=3,
                linestyle="none",
            )
        fill = MUTED if measure == "top1" else "white"
        ax.plot([], [], color=MUTED, marker="o", markerfacecolor=fill, linestyle="none", label=words)
    ax.set_xticks(list(places), [f"group {group}" for group in rows["group"]])
    ax.set_xlim(-0.5, len(rows) - 0.5)


def draw_matrix(matrix: pd.DataFrame, headline_words: str) -> Figure:
    """A heat map per decode mode: rows are what was trained at, columns what was tested at.

    `matrix` is as `table.matrix_table` makes it.
    """
    modes = sorted(matrix.loc[matrix["encoding"] == "pcr", "decode"].unique())
    trained = sorted(matrix["trained_on"].unique(), key=_place_of_label)
    low, high = matrix["score"].min(), matrix["score"].max()
    with style():
        figure = new_figure(PANEL_WIDTH_IN * len(modes), max(PANEL_HEIGHT_IN, 0.5 * len(trained) + 1.6))
        axes = figure.subplots(1, len(modes), squeeze=False)[0]
        for ax, mode in zip(axes, modes, strict=True):
            rows = matrix[(matrix["decode"] == mode) | (matrix["encoding"] == "baseline")]
            tested = rows.drop_duplicates("scan").sort_values(["encoding", "group"])["scan"].tolist()
            cells = rows.pivot_table(index="trained_on", columns="scan", values="score")
            cells = cells.loc[trained, tested]
            ax.imshow(cells, cmap="Greys", vmin=low, vmax=high + (high - low or 1), aspect="auto")
            ax.grid(visible=False)
            for y, values in enumerate(cells.to_numpy()):
                for x, value in enumerate(values):
                    ax.text(x, y, f"{100 * value:.1f}", ha="center", va="center", color=INK)
            ax.set_xticks(range(len(tested)), [scan_words(scan) for scan in tested])
            ax.set_yticks(range(len(trained)), [scan_words(scan) for scan in trained])
            ax.set_xlabel("tested at")
            ax.set_ylabel("trained at")
            panel_title(ax, f"decode = {mode}", f"{headline_words} (%)")
    return figure


def _place_of_label(label: str) -> tuple[bool, float, str]:
    if label == "baseline":
        return ScanLevel(label, "baseline").place
    number = label.removeprefix("group_")
    return ScanLevel(label, "pcr", float(number) if number.isdigit() else float("nan")).place
