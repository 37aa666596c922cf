"""Predicted against measured deviations of weight gradients, in both forms of the model."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, style

FORMS = {"exact": "sigma = eb sqrt(R/3) ||G||", "paper": "sigma = 0.32 L sqrt(N R) eb"}
CYCLE = ["#f1605d", "#b5367a", "#721f81", "#2c115f"]


def draw_gradient_sigma(sigmas: pd.DataFrame) -> Figure:
    """One panel per form (SIGMA_COLUMNS), one point per layer, bound and batch size; line: equality.

    Layers without an error are left out: their inputs were kept exactly, as the bound gained nothing.
    """
    sigmas = sigmas[sigmas["measured_sigma"] > 0]
    with style():
        figure, axes = panels(len(FORMS))
        for ax, (form, formula) in zip(axes, FORMS.items(), strict=True):
            ratio = (sigmas[f"{form}_sigma"] / sigmas["measured_sigma"]).dropna()
            _draw(ax, sigmas, f"{form}_sigma")
            panel_title(ax, f"{form} form", formula)
            note = (
                f"n = {len(ratio)}\npredicted / measured:\nmedian {ratio.median():.3g}\n"
                f"5 to 95%: {ratio.quantile(0.05):.2g} to {ratio.quantile(0.95):.3g}"
            )
            ax.annotate(
                note, (0.97, 0.04), xycoords="axes fraction", ha="right", va="bottom", fontsize=8, color=MUTED
            )
    return figure


def _draw(ax: Axes, sigmas: pd.DataFrame, predicted: str) -> None:
    for color, (bound, rows) in zip(CYCLE, sigmas.groupby("bound"), strict=False):
        ax.plot(
            rows["measured_sigma"],
            rows[predicted],
            "o",
            color=color,
            markersize=4,
            alpha=0.7,
            markeredgewidth=0,
            label=f"bound {bound:g}",
        )
    low, high = sigmas["measured_sigma"].min(), sigmas["measured_sigma"].max()
    ax.plot([low, high], [low, high], color=INK, linewidth=1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("measured standard deviation (log scale)")
    ax.set_ylabel("predicted (log scale)")
    ax.legend(loc="upper left", labelcolor=MUTED)
