"""Fresh examples to the target against factor, batch size or buffer (Choi et al. 2019, figures 5, 6, 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pcr_exp.analysis.core.panels import wide_panels
from pcr_exp.analysis.core.style import panel_title, scan_label, style
from pcr_exp.analysis.echo.look_figure import echo_panels, in_order, look_of, name_of, variant_of
from pcr_exp.analysis.echo.table import SERIES_KEYS

AXES = {
    "factor": "echo factor e",
    "batch_size": "batch size",
    "buffer": "shuffle buffer behind the echo (examples)",
}


def draw_fresh_against(summary: pd.DataFrame, x: str) -> Figure:
    """Fresh examples to the target against a column of AXES, one line per variant, one panel per setting.

    `summary` is `tuned` by fresh_to_target.
    """
    with style():
        facts = list(echo_panels(summary))
        figure, axes = wide_panels(len(facts))
        for ax, (title, subtitle, rows) in zip(axes, facts, strict=True):
            for name, line in series(rows, x):
                draw_points(ax, line, x, "fresh_to_target", name)
            ax.set_ylabel("fresh examples to target")
            ax.set_ylim(bottom=0)
            x_axis(ax, rows, x)
            ax.legend(loc="best")
            panel_title(ax, title, f"{target_of(rows)}, {subtitle}")
    return figure


def series(rows: pd.DataFrame, x: str) -> list[tuple[str, pd.DataFrame]]:
    """(name, rows by rising x) of every line: what differs in more than `x` is a line of its own.

    Against the factor, every variant's line begins with the baseline, with the same buffer if there is one.
    """
    rows = in_order(rows)
    fixed = ["variant", *(key for key in SERIES_KEYS if key not in (x, "variant"))]
    has_scans = rows["scan"].nunique() > 1
    baselines = rows[rows["factor"] == 1]
    lines = []
    for _, line in (rows[rows["factor"] > 1] if x == "factor" else rows).groupby(fixed, sort=False):
        first = line.iloc[0].to_dict()
        name = name_of({**first, "buffer": 1} if x == "buffer" else first, with_factor=x != "factor")
        if x == "factor":
            line = pd.concat([_start(baselines, first), line])
        scan = f"{scan_label(first['scan'])}, " if has_scans else ""
        lines.append((scan + name, line.sort_values(x)))
    return lines


def _start(baselines: pd.DataFrame, first: Mapping[Any, Any]) -> pd.DataFrame:
    """The baseline that a line against the factor begins with; no row if there is none."""
    keys = ["scan", "batch_size", "epochs"]
    alike = baselines[(baselines[keys] == [first[key] for key in keys]).all(axis=1)]
    return alike.sort_values("buffer", key=lambda buffer: buffer != first["buffer"], kind="stable").head(1)


def draw_points(ax: Axes, line: pd.DataFrame, x: str, measure: str, name: str) -> None:
    """The mean of a measure over seeds, with whiskers to the smallest and the largest.

    A cross on the axis is where there is no mean, because not every seed reached the target.
    """
    mean, low, high = (line[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    look = look_of(variant_of(line.iloc[-1].to_dict()))
    ax.errorbar(line[x], mean, [mean - low, high - mean], capsize=3, elinewidth=1, label=name, **look)  # type: ignore[arg-type]
    for x_value, y_value, n in zip(line[x], mean, line["n"], strict=True):
        if n == 1 < line["n"].max():
            ax.annotate("n = 1", (x_value, y_value), (4, 4), textcoords="offset points", fontsize=7)
    missing = line[mean.isna()]
    if len(missing):
        ax.plot(missing[x], np.zeros(len(missing)), "x", color=look["color"], clip_on=False, markersize=7)


def target_of(rows: pd.DataFrame) -> str:
    """The target in words, and what a cross means if there is one."""
    missed = (rows["num_reached"] < rows["n"]).any()
    return f"target {100 * rows['target_top1'].iloc[0]:g}%{' (x: missed)' if missed else ''}"


def x_axis(ax: Axes, rows: pd.DataFrame, x: str) -> None:
    """Factors of two are equally far apart; a tick at every value that was run."""
    values = sorted(rows[x].unique())
    ax.set_xscale("log", base=2)
    ax.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(AXES[x])
