"""Variants of data echoing side by side (Choi et al. 2019, figures 3 and 8)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import wide_panels
from pcr_exp.analysis.core.style import MUTED, accuracy_axis, panel_title, style
from pcr_exp.analysis.echo.look_figure import echo_panels, in_order, look_of, name_of, variant_of
from pcr_exp.analysis.echo.table import BASELINE


def draw_fresh_to_target(summary: pd.DataFrame) -> Figure:
    """Fresh examples to the target per variant (`tuned` by fresh_to_target), one panel per setting.

    Whiskers: smallest and largest seed. Dashed: the baseline over the echo factor, where repeats would be
    worth as much as fresh examples. A variant that not every seed reaches the target with has no bar.
    """
    with style():
        facts = list(echo_panels(summary))
        figure, axes = wide_panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            rows = in_order(rows)
            _bars(ax, rows, "fresh_to_target")
            for place, row in enumerate(rows.to_dict("records")):
                if row["no_target"]:
                    _note(ax, place, "target\nis guessed")
                elif row["num_reached"] < row["n"]:
                    _note(ax, place, f"reached by\n{row['num_reached']} of {row['n']}")
            _ideal(ax, rows)
            ax.set_ylabel("fresh examples to target")
            ax.set_ylim(bottom=0)
            target = f"target {100 * rows['target_top1'].iloc[0]:g}%"
            panel_title(ax, title, f"e = {rows['factor'].max():g}, {target}, {subtitle}")
    return figure


def draw_top1_at_budget(summary: pd.DataFrame) -> Figure:
    """Last validation top-1 per variant with as many fresh examples for all (`tuned` by final_top1)."""
    with style():
        facts = list(echo_panels(summary))
        figure, axes = wide_panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            rows = in_order(rows)
            _bars(ax, rows, "final_top1")
            guessing_lines(ax, rows)
            accuracy_axis(ax)
            ax.set_ylabel("last validation top-1")
            ax.set_ylim(bottom=0)
            budgets = " or ".join(f"{budget:,}" for budget in sorted(rows["fresh"].unique()))
            panel_title(ax, title, f"e = {rows['factor'].max():g}, {budgets} fresh examples, {subtitle}")
    return figure


def _bars(ax: Axes, rows: pd.DataFrame, measure: str) -> None:
    for place, row in enumerate(rows.to_dict("records")):
        mean, low, high = (row[f"{measure}_{part}"] for part in ("mean", "min", "max"))
        ax.bar(place, mean, width=0.7, color=look_of(variant_of(row))["color"])
        ax.errorbar(place, mean, [[mean - low], [high - mean]], color=MUTED, capsize=3, linewidth=1.2)
    # One word per line: up to seven bars stand side by side.
    most = rows["n"].max()
    alone = ["\n(n = 1)" if n == 1 < most else "" for n in rows["n"]]
    names = [name_of(row).replace(", ", "\n").replace(" ", "\n") for row in rows.to_dict("records")]
    names = [name + mark for name, mark in zip(names, alone, strict=True)]
    ax.set_xticks(range(len(rows)), names, fontsize=8)
    ax.grid(axis="x", visible=False)


def _ideal(ax: Axes, rows: pd.DataFrame) -> None:
    factor = rows["factor"].max()
    for baseline in rows.loc[rows["variant"] == BASELINE, "fresh_to_target_mean"].head(1):
        ax.axhline(baseline / factor, color=MUTED, linestyle="--", linewidth=1)
        ax.annotate(
            f"baseline / {factor:g}",
            (1, baseline / factor),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            fontsize=8,
        )


def _note(ax: Axes, place: int, text: str) -> None:
    ax.annotate(
        text, (place, 0), xytext=(0, 6), textcoords="offset points", ha="center", color=MUTED, fontsize=8
    )
