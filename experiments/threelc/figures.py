"""Figures of gradient compression: accuracy over time, speed-ups, traffic, and bits over training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.threelc.frame import CODEC, DIRECTIONS, LOCAL_STEPS, PANEL_KEYS, REFERENCE, SERIES_KEYS
from pcr_exp.analysis.figure import (
    BELOW,
    LEGEND_LINE_IN,
    MAX_CURVES,
    accuracy_axis,
    draw_panels,
    enlarge,
    footer,
    new_figure,
    panel_title,
    panels,
    same_limits,
    single_run_mark,
    target_line,
)
from pcr_exp.analysis.frame import per_setting
from pcr_exp.analysis.marks import chance_lines
from pcr_exp.analysis.primary_metric import metric_of
from pcr_exp.analysis.style import INK, MUTED, fallback_style, style
from pcr_exp.analysis.tables import span, with_unit

# None is a scan level's colour (`style.OTHER_STYLES`). Codecs with a number have a colormap (`_depth`).
_STYLES = {
    "none": (INK, "s"),
    LOCAL_STEPS: ("#c2a5cf", "X"),
    "fp16": ("#6b6b6b", "D"),
    "bf16": ("#9a9a9a", "d"),
    "int8": ("#8c6d31", "^"),
    "topk": ("Greens", "v"),
    "powersgd": ("#a0a000", "P"),
    "ternary_stochastic": ("#005f3c", "<"),
    "onebit": ("#56B4E9", ">"),
    "threelc": ("Blues", "o"),
}


def style_of(codec: Mapping[Any, Any]) -> dict[str, Any]:
    """Return colour and marker of a row's codec (columns CODEC) as matplotlib keywords."""
    color, marker = _STYLES.get(codec["codec_name"]) or fallback_style(codec["codec_name"])
    if color in mpl.colormaps:
        color = to_hex(mpl.colormaps[color](_depth(codec)))
    return {"color": color, "marker": marker}


def _depth(codec: Mapping[Any, Any]) -> float:
    """Return a place in a colormap: darker with the share that top-k sends, or with 3LC's s."""
    if codec["codec_name"] == "topk":
        return 0.35 + 0.3 * math.log10(max(1, 100 * codec["fraction"]))
    return 0.35 + 0.6 * (codec["sparsity"] - 1)


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Sort rows: 32-bit floats, our codecs, 3LC by rising s (without zero-run encoding first), others."""
    names = [*_STYLES, *sorted(set(table["codec_name"]) - set(_STYLES))]
    amount = table["sparsity"].fillna(table["fraction"]).fillna(table["rank"]).fillna(0)
    ranked = table.assign(_name=table["codec_name"].map(names.index), _amount=amount)
    ranked = ranked.sort_values(["_name", "_amount", "zero_run"], kind="stable")
    return ranked.drop(columns=["_name", "_amount"])


def network_name(bandwidth_mbit_per_s: float, latency_ms: float = 0) -> str:
    """Return a link's name: `10 Mbit/s`, with the latency if there is one."""
    rate = f"{bandwidth_mbit_per_s:,g} Mbit/s" if math.isfinite(bandwidth_mbit_per_s) else "loopback"
    return f"{rate}, {latency_ms:g} ms" if latency_ms else rate


def _subtitle(rows: pd.DataFrame) -> str:
    return f"{rows['world_size'].iloc[0]} processes, n = {span(rows['n'])}"


def gradient_links(table: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Yield (title, subtitle, link, rows in order) of each panel's runs that differ only in the codec.

    A link's name includes the epochs if it has runs of several lengths.
    """
    of_link = [key for key in SERIES_KEYS if key not in ("epochs", "codec")]
    for title, _, rows in per_setting(table, PANEL_KEYS):
        for _, on_link in in_order(rows).groupby(of_link, sort=True):
            for epochs, alike in on_link.groupby("epochs", sort=True):
                first = alike.iloc[0]
                link = network_name(first["bandwidth_mbit_per_s"], first["latency_ms"])
                length = "" if len(alike) == len(on_link) else f", {epochs} epochs"
                yield title, _subtitle(alike), f"{link}, {first['mode']}{length}", alike


_TICKS = [0.1, 0.2, 0.5, 1, 1.6, 3, 5, 10]

_WITHOUT_ZERO_RUNS = 1.6


def draw_accuracy_against_time(curves: pd.DataFrame) -> Figure:
    """Draw mean scores over seeds of `accuracy_curves`: a line per codec, a panel per mode, link and epochs.

    More than MAX_CURVES codecs are split into several panels, each with the runs that compress nothing.
    """
    with style():
        groups = [
            (title, subtitle, link, part)
            for title, subtitle, link, rows in gradient_links(curves)
            for part in few_codecs(rows)
        ]
        figure, axes = panels(len(groups), max_columns=2)
        enlarge(figure, height_in=4 * LEGEND_LINE_IN * -(-len(groups) // 2))
        for ax, (title, subtitle, link, rows) in zip(axes, groups, strict=True):
            for codec, line in rows.groupby("codec", sort=False):
                alone = single_run_mark(line["n"].iloc[0], rows["n"].max())
                look = style_of(line.iloc[0].to_dict())
                ax.plot(line["seconds"], line["val_score"], label=f"{codec}{alone}", linewidth=1.5, **look)
            target_line(ax, rows["target_score"].iloc[0])
            chance_lines(ax, rows)
            ax.set_xlim(left=0)
            ax.set_xlabel(with_unit("training + data wait", "train_s"))
            accuracy_axis(ax, rows)
            ax.legend(**BELOW, ncols=2)
            panel_title(ax, f"{title}, {link}", subtitle)
        same_limits(axes, [(title, link) for title, _, link, _ in groups])
    return figure


def few_codecs(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Split rows of more than MAX_CURVES codecs, 3LC apart from others; each part includes REFERENCE."""
    names = list(dict.fromkeys(rows["codec"]))
    if len(names) <= MAX_CURVES:
        return [rows]
    threelc = set(rows.loc[rows["codec_name"] == "threelc", "codec"])
    families = [[name for name in names if (name in threelc) == ours] for ours in (False, True)]
    others = [[name for name in family if name != REFERENCE] for family in families]
    step = MAX_CURVES - 1
    parts = [family[i : i + step] for family in others for i in range(0, len(family), step)]
    return [rows[rows["codec"].isin([REFERENCE, *part])] for part in parts]


def draw_speedups(table: pd.DataFrame) -> Figure:
    """Draw speed-ups and accuracy of `gradient_table`: a line per codec, a panel per mode and link.

    The last panel shows points of accuracy against 32-bit floats of the same seed, with 95 % intervals, only
    after the most updates: fewer learn too little to lose any. Left out are rows without a speed-up, because
    `none` was not run, and 3LC without zero-run encoding, which has its own figure.
    """
    found = table[table["speedup"].notna() & ~((table["codec_name"] == "threelc") & (table["zero_run"] == 0))]
    by_task = per_setting(found, PANEL_KEYS)
    tasks = [(title, rows, list(gradient_links(rows))) for title, _, rows in by_task]
    num_columns = 1 + max(len(links) for *_, links in tasks)
    heights = [1.5 + 0.24 * rows["codec"].nunique() for _, rows, _ in tasks]
    with style():
        figure = new_figure(1.4 + 2.5 * num_columns, sum(heights))
        grid = figure.subplots(len(tasks), num_columns, squeeze=False, height_ratios=heights, sharey="row")
        for axes, (title, rows, links) in zip(grid, tasks, strict=True):
            codecs = list(dict.fromkeys(in_order(rows)["codec"]))
            for ax, (_, subtitle, link, alike) in zip(axes, links, strict=False):
                _bars(ax, alike, codecs)
                panel_title(ax, link, f"{alike['updates'].max():,} updates, {subtitle}")
            for ax in axes[len(links) : -1]:
                ax.remove()
            longest = max((alike for *_, alike in links), key=_num_compared)
            _differences(axes[-1], longest, codecs)
            panel_title(axes[-1], title, f"after {longest['updates'].max():,} updates")
            alone = rows.groupby("codec")["n"].max()
            names = [codec + single_run_mark(alone[codec], alone.max()) for codec in codecs]
            axes[0].set_yticks(range(len(codecs)), names, fontsize=8)
            axes[0].set_ylim(len(codecs) - 0.5, -0.5)
        footer(figure, "whiskers of speed-ups: smallest and largest seed; of points: 95 % intervals")
    return figure


def _num_compared(rows: pd.DataFrame) -> tuple[int, int]:
    """Return a sort key: rows with intervals, and of these the ones with the most updates, come last."""
    return int(rows["difference_ci95"].notna().any()), int(rows["updates"].max())


def _bars(ax: Axes, rows: pd.DataFrame, codecs: Sequence[str]) -> None:
    for row in rows.to_dict("records"):
        place, mean = codecs.index(row["codec"]), row["speedup"]
        ax.barh(place, mean, height=0.7, color=style_of(row)["color"])
        if row["n"] > 1:
            whiskers = [[mean - row["speedup_min"]], [row["speedup_max"] - mean]]
            ax.errorbar(mean, place, xerr=whiskers, color=MUTED, capsize=2, linewidth=1)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("speed-up over 32-bit floats")
    ax.set_xlim(left=0)


def _differences(ax: Axes, rows: pd.DataFrame, codecs: Sequence[str]) -> None:
    for row in rows[rows["difference_ci95"].notna()].to_dict("records"):
        points, ci95 = (100 * row[f"difference_{part}"] for part in ("mean", "ci95"))
        place = codecs.index(row["codec"])
        ax.errorbar(points, place, xerr=ci95, capsize=3, elinewidth=1.2, **style_of(row))
    ax.axvline(0, color=MUTED, linewidth=1, zorder=1)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"points of {metric_of(rows).words} against 32-bit floats")


def traffic_by_sparsity(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per s and zero_run of 3LC: means of `gradient_table` over networks, which change no bits.

    Columns: PANEL_KEYS, mode, updates, codec, CODEC, `n` (the largest), coded_bits,
    bits_per_value, ratio.
    """
    keys = [*PANEL_KEYS, "mode", "updates", "codec", *CODEC]
    threelc = table[table["sparsity"].notna()]
    means = threelc.groupby(keys, sort=True, dropna=False).agg(
        n=("n", "max"), coded_bits=("coded_bits_mean", "mean"), bits_per_value=("bits_per_value_mean", "mean")
    )
    return means.assign(ratio=32 / means["coded_bits"]).reset_index()


def draw_traffic_by_sparsity(traffic: pd.DataFrame) -> Figure:
    """Draw bits per value of `traffic_by_sparsity` against s, with and without zero-run encoding.

    One panel per setting, mode and number of updates. Dotted: over all tensors, including small ones sent as
    float32, and framing.
    """
    groups = [
        (title, f"{mode}, {updates:,} updates, {_subtitle(alike)}", alike)
        for title, _, rows in per_setting(traffic, PANEL_KEYS)
        for (mode, updates), alike in rows.groupby(["mode", "updates"], sort=True)
    ]
    return draw_panels(groups, _draw_traffic)


def _draw_traffic(ax: Axes, rows: pd.DataFrame) -> None:
    _lines(ax, rows)
    ax.set_xticks(sorted(rows["sparsity"].unique()))
    ax.set_xlabel("sparsity multiplier s")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(FixedLocator(_TICKS))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_ylabel("bits per value (log scale)")
    ax.legend(**BELOW)


def _lines(ax: Axes, rows: pd.DataFrame) -> None:
    for zero_run, name, color in (
        (False, "without zero-run encoding", MUTED),
        (True, "with zero-run encoding", style_of({"codec_name": "threelc", "sparsity": 1.75})["color"]),
    ):
        line = rows[rows["zero_run"] == zero_run]
        if not line.empty:
            alone = " (n = 1)" if (line["n"] == 1).all() and rows["n"].max() > 1 else ""
            ax.plot(line["sparsity"], line["coded_bits"], "o-", color=color, label=f"{name}{alone}")
            every = line["sparsity"], line["bits_per_value"]
            ax.plot(*every, ":", color=color, linewidth=1.2, label="small tensors and framing, too")


def draw_bits_over_training(curves: pd.DataFrame) -> Figure:
    """Draw bits per value of `bits_curves`: a panel per setting, mode and direction, a line per s.

    Dashed: 1.6 bits, or five values per byte, the size without zero-run encoding.
    """
    groups = [
        (f"{title}, {direction}, {mode}", _subtitle(alike), alike)
        for title, _, rows in per_setting(curves, PANEL_KEYS)
        for mode in ("server", "ddp")
        for direction in DIRECTIONS
        if len(alike := rows[(rows["mode"] == mode) & (rows["direction"] == direction)])
    ]
    words = f"dashed: {_WITHOUT_ZERO_RUNS} bits, what values take without zero-run encoding"
    return draw_panels(groups, _draw_bits, max_columns=2, words=words)


def _draw_bits(ax: Axes, rows: pd.DataFrame) -> None:
    for codec, line in in_order(rows).groupby("codec", sort=False):
        color = style_of(line.iloc[0].to_dict())["color"]
        alone = single_run_mark(line["n"].iloc[0], rows["n"].max())
        ax.plot(line["step"], line["coded_bits"], color=color, label=f"{codec}{alone}")
    ax.axhline(_WITHOUT_ZERO_RUNS, color=MUTED, linestyle="--", linewidth=1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("update")
    ax.set_ylabel("bits per value")
    ax.legend(**BELOW)
