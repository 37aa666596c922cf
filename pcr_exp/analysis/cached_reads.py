"""The figure of what a cache saves: of cached_reads.csv, which `measuring.speed.cached_reads` writes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.caption import Caption
from pcr_exp.analysis.core.figure import BELOW, footer, panel_title, panels, save_figure
from pcr_exp.analysis.core.look import INK, MUTED, OTHER_LOOKS, style

NAME = "cached_reads"
_LOOK = dict(zip(("kept prefixes", "recent prefixes", "whole files"), OTHER_LOOKS, strict=False))
_WORDS = {
    "static": "group 5 throughout",
    "rising": "groups 1, 2, 5, 10",
    "balanced": "groups 2, 5, 10 in turns",
}


def draw_cached_reads(rows: pd.DataFrame) -> Figure:
    """Bytes read from storage after the first epoch, of those without a cache; a panel per way of reading."""
    alone = rows[rows["jobs"] == 1]
    names = list(dict.fromkeys(alone["reading"]))
    with style():
        figure, axes = panels(len(names))
        for ax, name in zip(axes, names, strict=True):
            _draw_panel(ax, alone[alone["reading"] == name])
            panel_title(ax, name, _WORDS[name])
        axes[0].set_ylabel("bytes read / without a cache")
        footer(figure, "9 epochs of 320 records in the loader's own order, 8 lanes")
    return figure


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    bound = rows[rows["cache"] == "kept prefixes"]
    least = 1 - bound["bound_share"]
    words = "each byte kept saves one an epoch"
    ax.plot(100 * bound["cache_share"], least, color=INK, linestyle=":", label=words)
    for cache, (color, marker) in _LOOK.items():
        line = rows[(rows["cache"] == cache) | (rows["cache_share"] == 0)]
        ax.plot(100 * line["cache_share"], line["read_share"], color=color, marker=marker, label=cache)
    ax.axhline(1, color=MUTED, linewidth=0.8)
    ax.set_xlabel("cache, % of the largest prefixes")
    ax.legend(**BELOW, ncols=2)


def redraw_cached_reads(folder: Path, out: Path) -> list[Path]:
    """The figure of a folder's table; its own CSV is a copy of it."""
    rows = pd.read_csv(folder / f"{NAME}.csv")
    caption = Caption(
        shows="Bytes that a cache leaves to be read after the first epoch",
        of=("records as the loader reads them · no task · no model · no crops",),
        n=f"n = {rows['repeat'].nunique()}, simulated",
        hardware="any hardware: bytes do not depend on it",
        storage="storage: bytes that are asked of it, whatever its MiB/s",
    )
    return save_figure(draw_cached_reads(rows), rows, out, NAME, caption)
