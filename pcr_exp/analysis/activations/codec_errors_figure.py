"""How far decoded values are from the values themselves."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, style

CODEC_COLOR = "#b5367a"
UNIFORM = 1 / math.sqrt(3)


def draw_codec_errors(errors: pd.DataFrame) -> Figure:
    """One panel per codec (CODEC_COLUMNS): shares of errors in units of the bound; dotted: uniform errors."""
    with style():
        figure, axes = panels(errors["codec"].nunique())
        for ax, (codec, rows) in zip(axes, errors.groupby("codec", sort=False), strict=True):
            width = rows["high"] - rows["low"]
            ax.bar(rows["low"], rows["share"], width, align="edge", color=CODEC_COLOR, linewidth=0)
            ax.axhline(float(width.iloc[0]) / 2, color=INK, linewidth=1, linestyle=":")
            first = rows.iloc[0]
            facts = (
                f"bound {first['bound']:g}, {first['num_values']:,} values; "
                f"std {first['std']:.3f} bounds (uniform {UNIFORM:.3f})"
            )
            panel_title(ax, f"errors of {codec}", facts)
            ax.set_xlabel("error (bounds)")
            ax.set_ylabel("share of values that are not 0")
            ax.tick_params(colors=MUTED)
    return figure
