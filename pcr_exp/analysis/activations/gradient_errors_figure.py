"""Errors of weight gradients beside the normal distribution."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, panel_title, style

ERROR_COLOR = "#7d3fa0"


def draw_gradient_errors(errors: pd.DataFrame, bound: float) -> Figure:
    """One panel per batch size at one bound (NORMAL_COLUMNS); line and brackets: the normal distribution."""
    errors = errors[np.isclose(errors["bound"], bound)]
    with style():
        figure, axes = panels(errors["batch_size"].nunique())
        grid = np.linspace(-4, 4, 201)
        density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
        for ax, (batch_size, rows) in zip(axes, errors.groupby("batch_size"), strict=True):
            width = rows["high"] - rows["low"]
            ax.bar(rows["low"], rows["share"] / width, width, align="edge", color=ERROR_COLOR, linewidth=0)
            ax.plot(grid, density, color=INK, linewidth=1.2)
            first = rows.iloc[0]
            shape = f"kurtosis {first['kurtosis']:.2f} (3), {100 * first['within_one']:.1f}% within 1 (68.3%)"
            panel_title(ax, f"N = {batch_size}, bound {bound:g}, {first['num_weights']:,} weights", shape)
            ax.set_xlabel("weight gradient error (its own standard deviations)")
            ax.set_ylabel("density")
    return figure
