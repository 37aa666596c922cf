"""Where bytes went in every combination of PCR and its neighbours, beside time and accuracy."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from pcr_exp.analysis.combined.table import PANEL_KEYS, PLACES
from pcr_exp.analysis.core.figure import PANEL_WIDTH_IN, guessing_lines, new_figure, panel_title
from pcr_exp.analysis.core.look import INK, MUTED, style

# Colours of Okabe and Ito (2008), as in the figures of data echoing; shapes for readers without colour.
_LOOKS = {"storage": ("#0072B2", "o"), "network": ("#E69F00", "s"), "memory": ("#009E73", "D")}
_COMPUTING = "#c4c4c4"
_WIDTHS = (1.1, 1.0, 0.8)
_INCHES_PER_ROW, _INCHES_AROUND = 0.36, 1.9


def draw_combined(summary: pd.DataFrame) -> Figure:
    """Three panels per group of comparable runs, one line per combination (`combined_summary`).

    Bytes at each place as shares of those with all off, on a logarithmic axis; seconds of training, and what
    of them was waiting for storage and for the network; top-1 of the finished model. Whiskers: smallest and
    largest seed.
    """
    panels = list(summary.groupby(PANEL_KEYS, sort=True))
    heights = [_INCHES_AROUND + _INCHES_PER_ROW * len(rows) for _, rows in panels]
    with style():
        figure = new_figure(PANEL_WIDTH_IN * sum(_WIDTHS), sum(heights))
        grid = figure.subplots(
            len(panels), 3, squeeze=False, width_ratios=_WIDTHS, height_ratios=heights, sharey="row"
        )
        for axes, (key, rows) in zip(grid, panels, strict=True):
            dataset, label, model, storage, network, processes, _ = key
            rows = rows.reset_index(drop=True)
            _draw_bytes(axes[0], rows)
            _draw_seconds(axes[1], rows)
            guessing_lines(axes[2], rows, upright=True)
            _draw_top1(axes[2], rows)
            for ax in axes:
                ax.grid(axis="y", visible=False)
            most = rows["n"].max()
            alone = [" (n = 1)" if n == 1 < most else "" for n in rows["n"]]
            axes[0].set_yticks(range(len(rows)), [*(rows["combination"] + pd.Series(alone))])
            axes[0].invert_yaxis()
            low, high = rows["n"].min(), rows["n"].max()
            seeds = f"n = {low}" if low == high else f"n = {low} to {high}"
            panel_title(
                axes[0],
                f"{dataset} · {label} · {model}",
                f"{processes} process{'' if processes == 1 else 'es'}, {seeds}",
            )
            panel_title(axes[1], " ", f"storage {storage}, network {network}")
            updates = " or ".join(f"{count:,.0f}" for count in sorted(set(rows["updates_mean"])))
            panel_title(axes[2], " ", f"after {updates} updates")
    return figure


def _draw_bytes(ax: Axes, rows: pd.DataFrame) -> None:
    places = [place for place in PLACES if rows[f"{place}_share"].notna().any()]
    for i, place in enumerate(places):
        color, marker = _LOOKS[place]
        heights = rows.index + 0.18 * (i - (len(places) - 1) / 2)  # equal shares do not hide each other
        ax.plot(rows[f"{place}_share"], heights, marker, color=color, markersize=6, label=place)
    ax.axvline(1, color=MUTED, linewidth=1, linestyle="--", zorder=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("bytes read, sent, kept for backward\n(share of all off, log scale)")
    if places:
        _legend_below(ax)


def _draw_seconds(ax: Axes, rows: pd.DataFrame) -> None:
    if (rows["no_seconds"] != "").all():
        words = textwrap.fill(f"no seconds: {rows['no_seconds'].iloc[0]}", 34)
        ax.annotate(
            words, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center", color=MUTED, fontsize=8
        )
        ax.set_xlabel("seconds of training and waiting")
        ax.set_xticks([])
        return
    wait, network = rows["wait_s_mean"], rows["network_s_mean"].fillna(0)
    computing = rows["seconds_mean"] - wait - network
    left = pd.Series(0.0, index=rows.index)
    for seconds, color, name in (
        (computing, _COMPUTING, "computing"),
        (network, _LOOKS["network"][0], "network"),
        (wait, _LOOKS["storage"][0], "data"),
    ):
        ax.barh(rows.index, seconds, left=left, height=0.6, color=color, label=name)
        left = left + seconds
    _whiskers(ax, rows, "seconds", marker="")
    ax.set_xlabel("seconds of training and waiting")
    ax.set_xlim(left=0)
    _legend_below(ax)


def _draw_top1(ax: Axes, rows: pd.DataFrame) -> None:
    _whiskers(ax, rows, "final_top1", marker="o")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlabel("last validation top-1")


def _legend_below(ax: Axes) -> None:
    """Under the axis's label, where it hides nothing; its distance does not depend on the panel's height."""
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=6, ncols=3, fontsize=8, columnspacing=1
    )


def _whiskers(ax: Axes, rows: pd.DataFrame, measure: str, *, marker: str) -> None:
    mean, low, high = (rows[f"{measure}_{part}"] for part in ("mean", "min", "max"))
    ax.errorbar(
        mean,
        rows.index,
        xerr=[mean - low, high - mean],
        fmt=marker or "none",
        color=INK,
        capsize=3,
        elinewidth=1,
    )
