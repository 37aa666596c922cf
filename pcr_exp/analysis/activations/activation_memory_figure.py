"""Memory between forward and backward, mode by mode."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import MUTED, kilobytes, panel_title, style

COLORS = {"none": "#1a1a1a", "lossless": "#9aa5b1", "recompute": "#4f8fba"}
BOUNDED = "#b5367a"
PANELS = {"kept_bytes": "kept for backward", "peak_bytes": "peak of forward and backward"}


def draw_activation_memory(table: pd.DataFrame, title: str) -> Figure:
    """Two panels of bars (MEMORY_COLUMNS): kept when backward begins, and the peak of the update."""
    with style():
        figure, axes = panels(2)
        first = table.iloc[0]
        facts = f"batch of {first['batch_size']}, on {first['device']}, storages counted once"
        for ax, (column, name) in zip(axes, PANELS.items(), strict=True):
            values = table[column].fillna(0)
            colors = [COLORS.get(mode, BOUNDED) for mode in table["mode"]]
            ax.barh(range(len(table)), values, color=colors, height=0.66)
            for position, row in enumerate(table.to_dict("records")):
                missing = row[column] != row[column]
                share = "" if missing else f"{kilobytes(row[column])}, {row[column] / first[column]:.2f} x"
                ax.annotate(
                    "not for this model" if missing else share,
                    (values.iloc[position], position),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                    color=MUTED,
                )
            ax.set_yticks(range(len(table)), list(table["mode"]))
            ax.invert_yaxis()
            ax.margins(x=0.35)
            ax.xaxis.set_major_locator(MaxNLocator(5))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: kilobytes(value)))
            ax.grid(axis="y", visible=False)
            panel_title(ax, f"{name}, {title}" if ax is axes[0] else name, facts)
    return figure
