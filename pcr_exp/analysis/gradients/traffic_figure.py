"""What the sparsity multiplier and zero-run encoding save (3LC, table of average traffic)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, style
from pcr_exp.analysis.gradients.look_figure import gradient_panels, look_of
from pcr_exp.analysis.gradients.published_3lc import published
from pcr_exp.analysis.gradients.table import PANEL_KEYS

_TICKS = [0.1, 0.2, 0.5, 1, 1.6, 2, 5, 10]


def traffic_by_sparsity(table: pd.DataFrame) -> pd.DataFrame:
    """3LC's rows of `gradient_table`, means over networks, which change no bits: one per s and zero_run.

    Columns: PANEL_KEYS, mode, updates, codec, sparsity, zero_run, `n` (of the largest), coded_bits,
    bits_per_value, ratio.
    """
    keys = [*PANEL_KEYS, "mode", "updates", "codec", "sparsity", "zero_run"]
    threelc = table[table["sparsity"].notna()]
    means = threelc.groupby(keys, sort=True).agg(
        n=("n", "max"), coded_bits=("coded_bits_mean", "mean"), bits_per_value=("bits_per_value_mean", "mean")
    )
    return means.assign(ratio=32 / means["coded_bits"]).reset_index()


def draw_traffic_by_sparsity(traffic: pd.DataFrame) -> Figure:
    """Bits per value against s of `traffic_by_sparsity`, with and without zero-run encoding.

    A panel per setting, mode and number of updates. Dotted: with all tensors, those included that are small
    and sent as float32. Diamonds: the paper's.
    """
    groups = [
        (title, subtitle, mode, updates, alike)
        for title, subtitle, rows in gradient_panels(traffic)
        for (mode, updates), alike in rows.groupby(["mode", "updates"], sort=True)
    ]
    with style():
        figure, axes = panels(len(groups))
        for ax, (title, subtitle, mode, updates, rows) in zip(axes, groups, strict=True):
            _lines(ax, rows)
            _published(ax, rows)
            ax.set_xticks(sorted(rows["sparsity"].unique()))
            ax.set_xlabel("sparsity multiplier s")
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(FixedLocator(_TICKS))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.set_ylabel("bits per value (log scale)")
            ax.legend(loc="best", fontsize=8)
            panel_title(ax, title, f"{mode}, {updates:,} updates, {subtitle}")
    return figure


def _lines(ax: Axes, rows: pd.DataFrame) -> None:
    for zero_run, name, color in (
        (False, "without zero-run encoding", MUTED),
        (True, "with zero-run encoding", look_of("threelc s=1.75")["color"]),
    ):
        line = rows[rows["zero_run"] == zero_run]
        if not line.empty:
            alone = " (n = 1)" if (line["n"] == 1).all() and rows["n"].max() > 1 else ""
            ax.plot(line["sparsity"], line["coded_bits"], "o-", color=color, label=f"{name}{alone}")
            every = line["sparsity"], line["bits_per_value"]
            ax.plot(*every, ":", color=color, linewidth=1.2, label="small tensors and framing, too")


def _published(ax: Axes, rows: pd.DataFrame) -> None:
    bits = [published(codec).bits_per_value for codec in rows["codec"]]
    label = "published (remembered)"
    ax.plot(rows["sparsity"], bits, "D", mfc="none", mec=INK, linestyle="none", label=label)
