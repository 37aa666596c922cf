"""Speed-up over 32-bit floats, and the accuracy that it costs (3LC, table of speed-ups)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, style
from pcr_exp.analysis.gradients.look_figure import gradient_links, look_of
from pcr_exp.analysis.gradients.published_3lc import published

_PUBLISHED_MBIT_PER_S = 10


def draw_speedups(table: pd.DataFrame) -> Figure:
    """Of `gradient_table`, two panels per mode, link and number of updates: speed-up, and last top-1.

    Whiskers: smallest and largest seed. Diamonds at 10 Mbit/s: the paper's, of another model on other data.
    Rows without a speed-up, because `none` was not run, are left out.
    """
    with style():
        groups = list(gradient_links(table[table["speedup"].notna()]))
        figure, axes = panels(2 * len(groups), max_columns=2)
        for i, (title, subtitle, link, rows) in enumerate(groups):
            left, right = axes[2 * i], axes[2 * i + 1]
            _bars(left, rows, ("speedup", "speedup_min", "speedup_max"))
            _bars(right, rows, ("final_top1_mean", "final_top1_min", "final_top1_max"))
            guessing_lines(right, rows, upright=True)
            if rows["bandwidth_mbit_per_s"].iloc[0] == _PUBLISHED_MBIT_PER_S:
                _published(left, rows)
            left.set_xlabel("speed-up over 32-bit floats")
            left.set_xlim(left=0)
            right.set_xlabel("last validation top-1")
            right.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            right.set_xlim(left=0)
            right.set_yticklabels([])
            panel_title(left, link, title)
            panel_title(right, " ", f"{rows['updates'].max():,} updates, {subtitle}")
    return figure


def _bars(ax: Axes, rows: pd.DataFrame, columns: tuple[str, str, str]) -> None:
    for place, row in enumerate(rows.to_dict("records")):
        mean, low, high = (row[column] for column in columns)
        ax.barh(place, mean, height=0.7, color=look_of(row["codec"])["color"])
        if row["n"] > 1:
            whiskers = [[mean - low], [high - mean]]
            ax.errorbar(mean, place, xerr=whiskers, color=MUTED, capsize=2, linewidth=1)
    most = rows["n"].max()
    alone = [" (n = 1)" if n == 1 < most else "" for n in rows["n"]]
    names = [f"{codec}{mark}" for codec, mark in zip(rows["codec"], alone, strict=True)]
    ax.set_yticks(range(len(rows)), names, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def _published(ax: Axes, rows: pd.DataFrame) -> None:
    speedups = [published(codec).speedup_at_10_mbit for codec in rows["codec"]]
    label = "published (remembered)"
    ax.plot(speedups, range(len(rows)), "D", mfc="white", mec=INK, linestyle="none", label=label)
    ax.legend(loc="upper right", fontsize=8)
