"""What every format of the same images takes: space, and time to build."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import MUTED, kilobytes, panel_title, style

COLORS = {"pcr": "#b5367a", "baseline": "#1a1a1a"}
OTHER = "#9aa5b1"


def draw_formats(formats: pd.DataFrame) -> Figure:
    """Two panels of bars, one per format (FORMAT_COLUMNS): kB per image, and CPU ms per image to build.

    Both encodings of records are written in one go, whose time is `pcr`'s.
    """
    with style():
        figure, (space, build) = panels(2)
        names = list(formats["format"])
        per_image = formats["num_bytes"] / formats["num_images"] / 1e3
        cpu_ms = 1e3 * formats["build_cpu_s"] / formats["num_images"]
        _bars(space, names, per_image, [kilobytes(1e3 * value) for value in per_image])
        _bars(build, names, cpu_ms, ["" if value != value else f"{value:.3g} ms" for value in cpu_ms])
        space.set_xlabel("kB per image")
        build.set_xlabel("CPU ms per image")
        build.set_yticklabels([])
        facts = f"{formats['num_images'].max():,} images"
        panel_title(space, "space of each format", facts)
        panel_title(build, "time to build it", f"{facts}; n = 1")
    return figure


def _bars(ax: Axes, names: list[str], values: pd.Series, texts: list[str]) -> None:
    for position, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        ax.barh(position, 0 if value != value else value, color=COLORS.get(name, OTHER), height=0.66)
        ax.annotate(
            text,
            (0 if value != value else value, position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.25)
    ax.grid(axis="y", visible=False)
