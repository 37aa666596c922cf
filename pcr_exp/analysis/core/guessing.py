"""What a model reaches that has learned nothing: lines in every figure of accuracy."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from pcr_exp.analysis.core.style import MUTED


def guessing_lines(ax: Axes, rows: pd.DataFrame, *, upright: bool = False) -> None:
    """Draw the share of the most frequent class (dash-dotted), and chance, one in the classes (dotted).

    They are named in the right margin, where no curve and no legend is. What is not known is not drawn.

    Args:
        ax: Of accuracies 0..1 on y, or on x if `upright`.
        rows: With `majority_share` and `num_classes`, of one dataset and label.
        upright: Accuracies are on x.
    """
    shares = sorted(set(rows["majority_share"].dropna()))
    chances = sorted({1 / classes for classes in rows["num_classes"].dropna() if classes})
    for share in shares:
        same = any(abs(share - chance) < 0.0005 for chance in chances)
        words = "majority\n= chance" if same else "majority"
        _line(ax, share, f"{words}\n{_short(share)}", "-.", upright)
    for chance in chances:
        if all(abs(share - chance) >= 0.0005 for share in shares):
            _line(ax, chance, f"chance\n{_short(chance)}", (0, (1, 2)), upright)


def _line(ax: Axes, at: float, words: str, dashes: object, upright: bool) -> None:
    draw = ax.axvline if upright else ax.axhline
    draw(at, color=MUTED, linewidth=0.9, linestyle=dashes, zorder=1)
    ax.annotate(
        words.replace("\n", " ") if upright else words,
        (at, 0) if upright else (1, at),
        xycoords=("data", "axes fraction") if upright else ("axes fraction", "data"),
        xytext=(2, 2) if upright else (3, 0),
        textcoords="offset points",
        rotation=90 if upright else 0,
        va="bottom" if upright else "center",
        color=MUTED,
        fontsize=7,
    )


def _short(share: float) -> str:
    return f"{100 * share:.3g}%"
