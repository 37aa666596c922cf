"""Fresh examples to the target against factor, batch size or buffer (Choi et al. 2019, figures 5, 6, 7)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pcr_exp.analysis.figures.echo_look import echo_panels, in_order, look_of, name_of, variant_of
from pcr_exp.analysis.figures.panels import panels
from pcr_exp.analysis.figures.style import panel_title, style

AXES = {
    "factor": "echo factor e",
    "batch_size": "batch size",
    "buffer": "shuffle buffer behind the echo (examples)",
}


def draw_fresh_against(summary: pd.DataFrame, x: str) -> Figure:
    """Fresh examples to the target against a column of AXES, one line per variant, one panel per setting.

    `summary` is `tuned` by fresh_to_target. Whiskers: smallest and largest seed; a point that not every seed
    reaches the target with is left out.
    """
    with style():
        facts = list(echo_panels(summary))
        figure, axes = panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            for name, line in series(rows, x):
                draw_points(ax, line, x, "fresh_to_target", name)
            ax.set_ylabel("fresh examples to target")
            ax.set_ylim(bottom=0)
            x_axis(ax, rows, x)
            ax.legend(loc="best")
            panel_title(ax, title, f"target {100 * rows['target_top1'].iloc[0]:g}%, {subtitle}")
    return figure


def series(rows: pd.DataFrame, x: str) -> list[tuple[str, pd.DataFrame]]:
    """(name, rows by rising x) of every line: what differs in more than `x` is a line of its own.

    Against the factor, the baseline begins the line of every variant with its buffer.
    """
    rows = in_order(rows)
    fixed = [key for key in ("factor", "buffer", "batch_size", "repeat_groups", "scan", "epochs") if key != x]
    is_baseline = rows["factor"] == 1
    lines = []
    start = rows[is_baseline] if x == "factor" else rows.iloc[:0]
    for _, line in rows[~is_baseline | (x != "factor")].groupby(["variant", *fixed], sort=False):
        first = line.iloc[0]
        name = name_of(
            {**first, "buffer": 1 if x == "buffer" else first["buffer"]}, with_factor=x != "factor"
        )
        alike = start[(start["scan"] == first["scan"]) & (start["batch_size"] == first["batch_size"])]
        alike = (
            alike[alike["buffer"] == first["buffer"]] if (alike["buffer"] == first["buffer"]).any() else alike
        )
        line = pd.concat([alike.head(1), line])
        if len({*rows["scan"]}) > 1:
            name = f"{first['scan'].replace('_', ' ')}, {name}"
        lines.append((name, line.sort_values(x)))
    return lines


def draw_points(ax: Axes, line: pd.DataFrame, x: str, measure: str, name: str) -> None:
    """The mean of a measure over seeds, with whiskers to the smallest and the largest."""
    mean, low, high = (line[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    look = look_of(variant_of(line.iloc[-1].to_dict()))
    ax.errorbar(line[x], mean, [mean - low, high - mean], capsize=3, elinewidth=1, label=name, **look)  # type: ignore[arg-type]


def x_axis(ax: Axes, rows: pd.DataFrame, x: str) -> None:
    """Factors of two are equally far apart; a tick at every value that was run."""
    values = sorted(rows[x].unique())
    ax.set_xscale("log", base=2)
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(AXES[x])
