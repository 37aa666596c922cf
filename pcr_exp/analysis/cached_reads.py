"""The figure of what a cache saves: of cached_reads.csv, which `measuring.speed.cached_reads` writes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.figure import footer, panels, save_figure, title_above

NAME = "cached_reads"
_LOOK = {
    "kept prefixes": ("#1b7837", "o"),
    "recent prefixes": ("#762a83", "s"),
    "whole files": ("#a6611a", "^"),
}
_WORDS = {
    "static": "group 5 throughout",
    "rising": "groups 1, 2, 5, 10",
    "balanced": "groups 2, 5, 10 in turns",
}


def draw_cached_reads(rows: pd.DataFrame) -> Figure:
    """Bytes read from storage after the first epoch, of those without a cache; a panel per way of reading."""
    alone = rows[rows["jobs"] == 1]
    names = list(dict.fromkeys(alone["reading"]))
    figure, axes = panels(len(names))
    for ax, name in zip(axes, names, strict=True):
        of_one = alone[alone["reading"] == name]
        bound = of_one[of_one["cache"] == "kept prefixes"]
        shares = 100 * bound["cache_share"]
        ax.plot(
            shares,
            1 - bound["bound_share"],
            color="black",
            linestyle=":",
            label="each byte kept saves one an epoch",
        )
        for cache, (color, marker) in _LOOK.items():
            line = of_one[(of_one["cache"] == cache) | (of_one["cache_share"] == 0)]
            ax.plot(100 * line["cache_share"], line["read_share"], color=color, marker=marker, label=cache)
        ax.axhline(1, color="grey", linewidth=0.8)
        ax.set_title(f"{name}: {_WORDS[name]}", fontsize=10)
        ax.set_xlabel("cache, % of the largest prefixes")
    axes[0].set_ylabel("bytes read / without a cache")
    axes[0].legend(loc=(0.42, 0.46), fontsize=8)
    title_above(figure, "Bytes that a cache leaves to be read after the first epoch")
    footer(figure, "Simulated with the loader's own order: 9 epochs of 320 records, 8 lanes, one job.")
    return figure


def redraw_cached_reads(folder: Path, out: Path) -> list[Path]:
    """The figure of a folder's table; its own CSV is a copy of it."""
    rows = pd.read_csv(folder / f"{NAME}.csv")
    return save_figure(draw_cached_reads(rows), rows, out, NAME)
