"""Figures of data echoing (Choi et al. 2019, figures 3 to 8): bars, lines, time and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.echoing.frame import BASELINE, PANEL_KEYS, SERIES_KEYS
from experiments.results.methods import describe_target
from pcr_exp.analysis.figure import (
    BELOW,
    MAX_CURVES,
    accuracy_axis,
    draw_panels,
    footer,
    named_line,
    panel_title,
    panels,
    same_limits,
    single_run_mark,
    target_line,
    ticks_in_bytes,
)
from pcr_exp.analysis.frame import per_setting
from pcr_exp.analysis.marks import chance_lines
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.style import INK, MUTED, describe_scan, fallback_style, level_of, scan_levels, style
from pcr_exp.analysis.tables import span, with_unit

# None is a scan level's colour (`style.OTHER_STYLES`). Shapes serve readers without colour.
_STYLES = {
    BASELINE: (INK, "s"),
    "batch": ("#56b4e9", "D"),
    "example_after": ("#009E73", "^"),
    "example_before": ("#0072B2", "o"),
    "finer repeats": ("#8c6d31", "P"),
}

_DASHES = ["-", (0, (1, 1)), (0, (4, 2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1))]


def variant_of(row: Mapping[Any, Any]) -> str:
    """Return a row's variant; if its repeats read further scan groups, that is `finer repeats`."""
    return "finer repeats" if row["repeat_groups"] else str(row["variant"])


def style_of(variant: str) -> dict[str, str]:
    """Return colour and marker of a variant as matplotlib keywords."""
    color, marker = _STYLES.get(variant) or fallback_style(variant)
    return {"color": color, "marker": marker}


def dashes_of(variant: str) -> Any:
    """Return a variant's dashes, for figures where colour means something else; dotted if it is not ours."""
    return dict(zip(_STYLES, _DASHES, strict=True)).get(variant, ":")


def name_of(row: Mapping[Any, Any], *, with_factor: bool = False) -> str:
    """Return a variant's name, with its buffer and the scan groups that its repeats read up to."""
    words = [variant_of(row).replace("_", " ")]
    if with_factor and row["factor"] != 1:
        words.append(f"e = {row['factor']:g}")
    if row["buffer"] > 1:
        words.append(f"buffer {row['buffer']}")
    if row["repeat_groups"]:
        words.append(f"to group {row['repeat_groups'].replace(' ', ', ')}")
    return ", ".join(words)


def in_order(summary: pd.DataFrame) -> pd.DataFrame:
    """Sort rows of `tuned`: baseline, batches, samples after and before augmentation, other variants."""
    variants = [*_STYLES, *sorted(set(summary["variant"]) - set(_STYLES))]
    rank = [variants.index(variant_of(row)) for row in summary.to_dict("records")]
    return (
        summary.assign(_rank=rank)
        .sort_values(["_rank", "factor", "buffer", "batch_size", "scan"], kind="stable")
        .drop(columns="_rank")
    )


Panels = list[tuple[str, str, pd.DataFrame]]
"""Title, subtitle and rows of each panel."""


def echo_panels(table: pd.DataFrame) -> Panels:
    """Return a panel for each group of comparable runs in a table with PANEL_KEYS."""
    return [
        (title, f"storage {group['storage']}, {facts(rows)}", rows)
        for title, group, rows in per_setting(table, PANEL_KEYS)
    ]


def facts(rows: pd.DataFrame) -> str:
    """Describe the number of seeds, and whether learning rates were tuned."""
    rates = int(rows["num_rates"].min())
    tuned = f"best of {rates} learning rates" if rates > 1 else "learning rate not tuned"
    return f"n = {span(rows['n'])}; {tuned}"


_WHISKERS = "whiskers: smallest and largest seed"

AXES = {
    "factor": "echo factor e",
    "batch_size": "batch size",
    "buffer": "shuffle buffer behind the echo (images)",
}


def draw_fresh_to_target(summary: pd.DataFrame) -> Figure:
    """Draw fresh images to the target per variant (`tuned` by fresh_to_target), one panel per setting.

    Whiskers: smallest and largest seed. Dashed: the baseline divided by the echo factor, as if repeats were
    worth as much as fresh images. A variant has no bar unless every seed reaches the target.
    """
    found = [
        (title, f"e = {rows['factor'].max():g}, {describe_target(rows)}, {subtitle}", in_order(rows))
        for title, subtitle, rows in echo_panels(summary)
    ]
    return draw_panels(found, _draw_fresh, wide=True, words=_WHISKERS)


def _draw_fresh(ax: Axes, rows: pd.DataFrame) -> None:
    _bars(ax, rows, "fresh_to_target")
    for place, row in enumerate(rows.to_dict("records")):
        if row["target_excluded_because"]:
            _note(ax, place, "target\nis guessed")
        elif row["num_reached"] < row["n"]:
            _note(ax, place, f"reached by\n{row['num_reached']} of {row['n']}")
    factor = rows["factor"].max()
    for baseline in rows.loc[rows["variant"] == BASELINE, "fresh_to_target_mean"].head(1):
        named_line(ax, baseline / factor, f"baseline / {factor:g}", dashes="--")
    ax.set_ylabel("fresh images to target")
    ax.set_ylim(bottom=0)


def draw_score_at_budget(summary: pd.DataFrame) -> Figure:
    """Draw the last validation score per variant at equally many fresh images (`tuned` by final_score)."""
    found = []
    for title, subtitle, rows in echo_panels(summary):
        budgets = " or ".join(f"{budget:,}" for budget in sorted(rows["fresh"].unique()))
        words = f"e = {rows['factor'].max():g}, {budgets} fresh images, {subtitle}"
        found.append((title, words, in_order(rows)))
    return draw_panels(found, _draw_score, wide=True, words=_WHISKERS)


def _draw_score(ax: Axes, rows: pd.DataFrame) -> None:
    _bars(ax, rows, "final_score")
    chance_lines(ax, rows)
    accuracy_axis(ax, rows)
    ax.set_ylabel(f"last validation {metric_of(rows).words}")
    ax.set_ylim(bottom=0)


def _bars(ax: Axes, rows: pd.DataFrame, measure: str) -> None:
    for place, row in enumerate(rows.to_dict("records")):
        mean, low, high = (row[f"{measure}_{part}"] for part in ("mean", "min", "max"))
        ax.bar(place, mean, width=0.7, color=style_of(variant_of(row))["color"])
        ax.errorbar(place, mean, [[mean - low], [high - mean]], color=MUTED, capsize=3, linewidth=1.2)
    # One word per line, because there are up to seven bars side by side.
    most = rows["n"].max()
    names = [
        name_of(row).replace(", ", "\n").replace(" ", "\n")
        + single_run_mark(row["n"], most).replace(" ", "\n", 1)
        for row in rows.to_dict("records")
    ]
    ax.set_xticks(range(len(rows)), names, fontsize=8)
    ax.grid(axis="x", visible=False)


def _note(ax: Axes, place: int, text: str) -> None:
    ax.annotate(
        text, (place, 0), xytext=(0, 6), textcoords="offset points", ha="center", color=MUTED, fontsize=8
    )


def draw_fresh_against(summary: pd.DataFrame, x: str) -> Figure:
    """Draw fresh images to the target against a column of AXES: a line per variant, a panel per setting.

    `summary` is `tuned` by fresh_to_target.
    """

    def draw(ax: Axes, rows: pd.DataFrame) -> None:
        for name, line in series(rows, x):
            draw_points(ax, line, x, "fresh_to_target", name)
        ax.set_ylabel("fresh images to target")
        ax.set_ylim(bottom=0)
        x_axis(ax, rows, x)
        ax.legend(**BELOW)

    found = [
        (title, f"{target_of(rows)}, {subtitle}", rows) for title, subtitle, rows in echo_panels(summary)
    ]
    return draw_panels(found, draw, wide=True, words=_WHISKERS)


def series(rows: pd.DataFrame, x: str) -> list[tuple[str, pd.DataFrame]]:
    """Return (name, rows by rising x) of each line, whose rows differ only in `x`.

    Against the factor, every line begins with the baseline, with the same buffer if there is one.
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
        scan = f"{describe_scan(first['scan'])}, " if has_scans else ""
        lines.append((scan + name, line.sort_values(x)))
    return lines


def _start(baselines: pd.DataFrame, first: Mapping[Any, Any]) -> pd.DataFrame:
    """Return the baseline that a line against the factor begins with; no row if there is none."""
    keys = ["scan", "batch_size", "epochs"]
    alike = baselines[(baselines[keys] == [first[key] for key in keys]).all(axis=1)]
    return alike.sort_values("buffer", key=lambda buffer: buffer != first["buffer"], kind="stable").head(1)


def draw_points(ax: Axes, line: pd.DataFrame, x: str, measure: str, name: str) -> None:
    """Draw the mean of a measure over seeds, with whiskers to the smallest and the largest.

    A cross on the axis marks a missing mean, where not every seed reached the target.
    """
    mean, low, high = (line[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    look = style_of(variant_of(line.iloc[-1].to_dict()))
    ax.errorbar(line[x], mean, [mean - low, high - mean], capsize=3, elinewidth=1, label=name, **look)  # type: ignore[arg-type]
    for x_value, y_value, n in zip(line[x], mean, line["n"], strict=True):
        if n == 1 < line["n"].max():
            ax.annotate("n = 1", (x_value, y_value), (4, 4), textcoords="offset points", fontsize=7)
    missing = line[mean.isna()]
    if len(missing):
        ax.plot(missing[x], np.zeros(len(missing)), "x", color=look["color"], clip_on=False, markersize=7)


def target_of(rows: pd.DataFrame) -> str:
    """Return the target in words, and the meaning of a cross if there is one."""
    missed = (rows["num_reached"] < rows["n"]).any()
    return f"{describe_target(rows)}{' (x: missed)' if missed else ''}"


def x_axis(ax: Axes, rows: pd.DataFrame, x: str) -> None:
    """Set up a logarithmic x axis of base 2, with a tick at every value that was run."""
    values = sorted(rows[x].unique())
    ax.set_xscale("log", base=2)
    ax.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(AXES[x])


def draw_echo_time(summary: pd.DataFrame) -> Figure:
    """Draw three panels per setting against the echo factor, from `tuned` by fresh_to_target.

    They show milliseconds of training and waiting per fresh example, seconds to the target, and fresh images
    to the target. The first also has the bound max(t_up, e x t_down), with the mean of the measured t_up and
    t_down over each variant's runs.
    """
    with style():
        found = echo_panels(summary)
        figure, axes = panels(3 * len(found))
        for number, (title, subtitle, rows) in enumerate(found):
            pace, seconds, fresh = axes[3 * number : 3 * number + 3]
            for name, line in series(rows, "factor"):
                in_ms = line.assign(
                    **{f"ms_{part}": 1e3 * line[f"s_per_fresh_{part}"] for part in ("mean", "min", "max")}
                )
                draw_points(pace, in_ms, "factor", "ms", name)
                draw_bound(pace, line)
                draw_points(seconds, line, "factor", "time_to_target_s", name)
                draw_points(fresh, line, "factor", "fresh_to_target", name)
            pace.set_ylabel("ms per fresh example")
            seconds.set_ylabel(with_unit("training + data wait to target", "train_s"))
            fresh.set_ylabel("fresh images to target")
            for ax in (pace, seconds, fresh):
                ax.set_ylim(bottom=0)
                x_axis(ax, rows, "factor")
            pace.legend(**BELOW)
            ratio = rows["upstream_ratio_mean"].mean()
            panel_title(pace, title, f"lines: max(t_up, e t_down), measured; mean R = {ratio:.2g}")
            panel_title(seconds, " ", target_of(rows))
            panel_title(fresh, " ", subtitle)
        footer(figure, _WHISKERS)
    return figure


def draw_bound(ax: Axes, line: pd.DataFrame) -> None:
    """Draw max(t_up, e x t_down) in ms, with the means over a line's runs."""
    factors = np.geomspace(line["factor"].min(), line["factor"].max(), 100)
    bound = bound_ms(
        factors, line["upstream_s_per_sample_mean"].mean(), line["downstream_s_per_sample_mean"].mean()
    )
    color = style_of(variant_of(line.iloc[-1].to_dict()))["color"]
    ax.plot(factors, bound, color=color, linewidth=1, linestyle=":", zorder=1)


def bound_ms(factors: np.ndarray, upstream_s: float, downstream_s: float) -> np.ndarray:
    """Return the least milliseconds per fresh example if stages overlap (Choi et al. 2019, section 2)."""
    return 1e3 * np.maximum(upstream_s, factors * downstream_s)


_LINE = ["scan", "variant", "factor", "buffer", "repeat_groups", "epochs"]


def draw_score_against_bytes(curves: pd.DataFrame) -> Figure:
    """Draw the mean validation score over seeds against record bytes read, a line per echo and scan level.

    The vertical line is the largest byte budget that all lines reach. Colour and shape show the scan level
    that is read first. Dashes, and whether shapes are filled, show the echo.

    Args:
        curves: One row per evaluation: PANEL_KEYS, SERIES_KEYS, `n`, `num_rates`, `target_score`, the chance
            level, and means over seeds of `record_bytes` and `val_score`.
    """
    found = [
        (title, subtitle, part) for title, subtitle, rows in echo_panels(curves) for part in _few_lines(rows)
    ]
    words = "upright line: the bytes that all lines have read; means over seeds"
    figure = draw_panels(found, _draw_bytes, wide=len(found) == 1, words=words)
    with style():
        same_limits(figure.axes, [(title, subtitle) for title, subtitle, _ in found])
        for ax in figure.axes:
            ticks_in_bytes(ax.xaxis, *ax.get_xlim())
    return figure


def _draw_bytes(ax: Axes, rows: pd.DataFrame) -> None:
    lines = rows.groupby(_LINE)
    for _, line in sorted(lines, key=lambda line: level_of(line[1].iloc[0].to_dict()).place):
        first = line.iloc[0].to_dict()
        variant, level = variant_of(first), level_of(first)
        alone = " · n = 1" if first["n"] == 1 < rows["n"].max() else ""
        # Not `baseline`, which is also the name of a scan level.
        echo = "no echo" if variant == BASELINE else name_of(first, with_factor=True)
        ax.plot(
            line["record_bytes"],
            line["val_score"],
            color=level.color,
            linestyle=dashes_of(variant),
            marker=level.marker,
            markerfacecolor=level.color if variant == BASELINE else "white",
            markeredgecolor="white" if variant == BASELINE else level.color,
            label=f"{level.words} · {echo}{alone}",
        )
    ax.axvline(lines["record_bytes"].max().min(), color=MUTED, linewidth=1, linestyle="--", zorder=1)
    target_line(ax, rows["target_score"].iloc[0])
    chance_lines(ax, rows)
    ax.set_xscale("log")
    ax.set_xlabel("bytes of records read (log scale)")
    accuracy_axis(ax, rows)
    ax.legend(**BELOW)


def _few_lines(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows, split by the scan level that is read first if there are more than MAX_CURVES lines."""
    if rows.groupby(_LINE).ngroups <= MAX_CURVES:
        return [rows]
    return [part for _, part in scan_levels(rows)]
