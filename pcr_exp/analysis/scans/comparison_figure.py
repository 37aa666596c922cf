"""Settings side by side: accuracy against time and against epochs, a curve per value of a setting."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.seeds import mean_over_seeds
from pcr_exp.analysis.core.style import INK, accuracy_axis, panel_title, scan_label, style, target_line
from pcr_exp.analysis.scans.comparison import SIDE_BY_SIDE, reference_first
from pcr_exp.analysis.scans.time_to_accuracy_figure import SECONDS_LABEL, with_seconds

# Colours of Okabe and Ito (2008), shapes for readers without colour; after seven values they begin again.
_LOOKS = [
    *(("#0072B2", "o"), ("#E69F00", "^"), ("#009E73", "D"), ("#CC79A7", "P")),
    *(("#D55E00", "v"), ("#56B4E9", ">"), ("#6b6b6b", "X")),
]


def draw_comparison(curves: pd.DataFrame, key: str, reference: str) -> Figure:
    """Per SIDE_BY_SIDE of `comparison_curves`, top-1 against seconds and against epochs.

    Seeds are thin, their mean is thick. The reference is dashed and on top: a value that coincides with it
    shows through its gaps. Where no seconds may be said, there is the panel of epochs alone.
    """
    values = [value for value in reference_first(curves["value"], reference) if value != reference]
    looks = {value: _LOOKS[i % len(_LOOKS)] for i, value in enumerate(values)}
    drawn = [
        (key, rows, x, x_label)
        for key, alike in curves.groupby(SIDE_BY_SIDE, sort=True)
        for rows, x, x_label in (
            (with_seconds(alike), "seconds", SECONDS_LABEL),
            (alike, "epoch", "epochs completed"),
        )
        if len(rows)
    ]
    has_seconds = any(x == "seconds" for _, _, x, _ in drawn)
    with style():
        figure, axes = panels(len(drawn), max_columns=2 if has_seconds else 1)
        for ax, ((dataset, label, model, storage, scan), rows, x, x_label) in zip(axes, drawn, strict=True):
            for value in reference_first(rows["value"], reference):
                _draw_value(ax, rows[rows["value"] == value], x, value, looks.get(value))
            target_line(ax, rows["target_top1"].iloc[0])
            guessing_lines(ax, rows)
            ax.set_xlim(left=0)
            ax.set_xlabel(x_label)
            accuracy_axis(ax)
            seeds = rows.groupby("value")["seed"].nunique()
            low, high = seeds.min(), seeds.max()
            number = f"n = {low}" + (f" to {high}" if low < high else "")
            panel_title(
                ax, f"{dataset} · {label} · {model}", f"{scan_label(str(scan))}, storage {storage}, {number}"
            )
            if x == "epoch":
                ax.xaxis.set_major_locator(MaxNLocator(integer=True))
                aside: dict[str, Any] = {
                    "loc": "center left",
                    "bbox_to_anchor": (1.12, 0.5),
                }  # hides no curve
                ax.legend(**aside, title=key, title_fontsize=8.5, fontsize=8, alignment="left")
    return figure


def _draw_value(ax: Axes, rows: pd.DataFrame, x: str, value: str, look: tuple[str, str] | None) -> None:
    color, marker = look or (INK, "s")
    for _, run in rows.groupby("run_id"):
        ax.plot(run[x], run["val_top1"], color=color, linewidth=0.8, alpha=0.4)
    mean = mean_over_seeds(rows, x, "val_top1")
    more: dict[str, Any] = {"linestyle": (0, (4.0, 1.6)), "zorder": 4} if look is None else {}
    ax.plot(mean[x], mean["val_top1"], color=color, marker=marker, label=value, **more)
