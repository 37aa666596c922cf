"""The page of the combined experiment: its table, and its figure of bytes, seconds and accuracy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from experiments.combined.frame import OFF, PANEL_KEYS, PLACES, combined_frame, combined_summary
from experiments.results.methods import speedup_cell
from pcr_exp.analysis.figure import (
    PANEL_WIDTH_IN,
    alone_mark,
    footer,
    new_figure,
    panel_title,
    percent_axis,
)
from pcr_exp.analysis.frame import per_setting
from pcr_exp.analysis.marks import upright_guessing_lines
from pcr_exp.analysis.page import Output, joined, sections
from pcr_exp.analysis.primary_metric import headline_of
from pcr_exp.analysis.reporting_rules import all_hardware
from pcr_exp.analysis.statistics import interval_words
from pcr_exp.analysis.style import INK, MUTED, style
from pcr_exp.analysis.tables import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    kilobytes,
    number,
    score_cells,
    span,
    spread_cell,
    three_figures,
    timed,
)

# None is a scan level's colour (`style.OTHER_LOOKS`); shapes for readers without colour.
_LOOKS = {"storage": ("#0072B2", "o"), "network": ("#8c6d31", "s"), "memory": ("#009E73", "D")}
_COMPUTING = "#c4c4c4"
_WIDTHS = (1.1, 1.0, 0.8)
_INCHES_PER_ROW, _INCHES_AROUND = 0.36, 1.9


def write_combined(output: Output) -> None:
    """Write combined.md and the figure `combined` (PDF, PNG, CSV), if there are combinations to compare."""
    summary = combined_summary(combined_frame(output.frame))
    if len(summary):
        output.text("combined", combined_markdown(summary))
        shows = "Where bytes and seconds go, with every combination"
        output.figure("combined", shows, summary, draw_combined)


def combined_markdown(summary: pd.DataFrame) -> str:
    """One table per panel: where bytes went, with their share of all off in brackets."""
    return joined(sections(summary, PANEL_KEYS, None, _facts, _columns))


def _facts(group: Mapping[str, Any], rows: pd.DataFrame) -> str:
    return (
        f"Storage {group['storage']}, network {group['network']}, {_processes(group)}; "
        f"{_updates(rows)} updates; mean over n seeds (smallest to largest), bytes in brackets against all "
        "off; speed-up and difference: against all off of the same seed, the latter ± half its 95 % interval "
        f"({interval_words(rows)}). "
        "Bytes kept for backward are those of one process, each storage once. "
        f"Setting {group['setting']}; {all_hardware(rows)}."
    )


def _processes(group: Mapping[str, Any]) -> str:
    return f"{group['processes']} process{'' if group['processes'] == 1 else 'es'}"


def _updates(rows: pd.DataFrame) -> str:
    return " or ".join(f"{count:,.0f}" for count in sorted(set(rows["updates_mean"])))


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    return {
        "combination": lambda row: row["combination"],
        "n": lambda row: notes.count(row["n"]),
        "read from storage": _bytes_cell("storage_bytes", "storage_share"),
        "fresh examples": lambda row: spread_cell(row, "fresh", "{:,.0f}".format),
        "repeats": lambda row: spread_cell(row, "repeats", "{:,.0f}".format),
        "given again by the pipeline": _bytes_cell("reused_bytes"),
        "pushed": _bytes_cell("pushed_bytes"),
        "pulled": _bytes_cell("pulled_bytes"),
        "on the wire": _bytes_cell("wire_bytes", "network_share"),
        "kept for backward, mean": _bytes_cell("kept_bytes_mean", "memory_share"),
        "at most": lambda row: number(row["kept_bytes_max_max"], kilobytes),
        "seconds": timed(notes, lambda row: spread_cell(row, "seconds", three_figures)),
        "of them data, network": timed(notes, _waits),
        "speed-up": timed(notes, _speedup),
        **score_cells(rows),
        "difference, points": lambda row: difference_cell(row, notes),
    }


def _speedup(row: Mapping[Any, Any]) -> str:
    return NOTHING if row["combination"] == OFF else speedup_cell("{:.2f} x".format)(row)


def _bytes_cell(measure: str, share: str | None = None) -> Cell:
    def cell(row: Mapping[Any, Any]) -> str:
        text = number(row[f"{measure}_mean"], kilobytes)
        if share is None or row[share] != row[share]:
            return text
        return f"{text} ({100 * row[share]:.3g}%)"

    return cell


def _waits(row: Mapping[Any, Any]) -> str:
    return ", ".join(number(row[f"{wait}_mean"], three_figures) for wait in ("wait_s", "network_s"))


def draw_combined(summary: pd.DataFrame) -> Figure:
    """Three panels per group of comparable runs, one line per combination (`combined_summary`).

    Bytes at each place as shares of those with all off, on a logarithmic axis; seconds of training, and what
    of them was waiting for storage and for the network; the finished model's score less that with all off.
    """
    panels = list(per_setting(summary, PANEL_KEYS))
    heights = [_INCHES_AROUND + _INCHES_PER_ROW * len(rows) for _, _, rows in panels]
    with style():
        figure = new_figure(PANEL_WIDTH_IN * sum(_WIDTHS), sum(heights))
        grid = figure.subplots(
            len(panels), 3, squeeze=False, width_ratios=_WIDTHS, height_ratios=heights, sharey="row"
        )
        for axes, (title, group, rows) in zip(grid, panels, strict=True):
            rows = rows.reset_index(drop=True)
            _draw_bytes(axes[0], rows)
            _draw_seconds(axes[1], rows)
            _draw_score(axes[2], rows)
            for ax in axes:
                ax.grid(axis="y", visible=False)
            most = rows["n"].max()
            names = zip(rows["combination"], rows["n"], strict=True)
            axes[0].set_yticks(range(len(rows)), [name + alone_mark(n, most) for name, n in names])
            axes[0].invert_yaxis()
            panel_title(axes[0], title, f"{_processes(group)}, n = {span(rows['n'])}")
            panel_title(axes[1], " ", f"storage {group['storage']}, network {group['network']}")
            panel_title(axes[2], " ", f"after {_updates(rows)} updates")
        footer(figure, "whiskers of seconds: smallest and largest seed; of differences: 95 % intervals")
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
    if (rows["timing_excluded_because"] != "").all():
        words = textwrap.fill(f"no seconds: {rows['timing_excluded_because'].iloc[0]}", 34)
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


def _draw_score(ax: Axes, rows: pd.DataFrame) -> None:
    """Differences to all off with their intervals; scores, where there is nothing to compare with."""
    if rows["difference_mean"].notna().any():
        compared = rows[rows["combination"] != OFF]
        points, ci95 = (100 * compared[f"difference_{part}"] for part in ("mean", "ci95"))
        ax.errorbar(points, compared.index, xerr=ci95, fmt="o", color=INK, capsize=3, elinewidth=1)
        ax.axvline(0, color=MUTED, linewidth=1, linestyle="--", zorder=1)
        ax.set_xlabel(f"points of {headline_of(rows).words}\nagainst all off, same seed")
        return
    upright_guessing_lines(ax, rows)
    _whiskers(ax, rows, "final_score", marker="o")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    percent_axis(ax.xaxis)
    ax.set_xlabel(f"last validation {headline_of(rows).words}")


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
