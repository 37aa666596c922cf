"""Bound and ratio of every compressed layer over training."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, style


def draw_layer_bounds(layers: pd.DataFrame, title: str) -> Figure:
    """Bounds (left) and ratios (right) against updates; `layers`: a run's activations.csv.

    One line per layer, from light (first) to dark (last); its ratio is the codec's. In black all layers
    together, where what another operation kept all the same counts as not compressed.
    """
    with style():
        figure, (bounds, ratios) = panels(2)
        names = list(dict.fromkeys(layers["layer"]))
        own = layers[layers["packed_bytes"] > 0]
        for i, name in enumerate(names):
            color = mpl.colormaps["plasma"](0.85 - 0.75 * i / max(1, len(names) - 1))
            rows = layers[layers["layer"] == name]
            bounds.plot(rows["step"], rows["bound"], color=color, linewidth=1)
            rows = own[own["layer"] == name]
            ratios.plot(rows["step"], rows["raw_bytes"] / rows["packed_bytes"], color=color, linewidth=1)
        together = own.groupby("step")[["raw_bytes", "packed_bytes", "held_bytes"]].sum()
        held = 100 * together["held_bytes"].sum() / together["raw_bytes"].sum()
        total = together["raw_bytes"] / (together["packed_bytes"] + together["held_bytes"])
        ratios.plot(total.index, total, color=INK, linewidth=2.2, label="all layers")
        bounds.set_yscale("log")
        bounds.set_ylabel("error bound (log scale)")
        ratios.set_ylabel("raw / packed bytes")
        for ax in (bounds, ratios):
            ax.set_xlabel("update")
        ratios.legend(labelcolor=MUTED)
        panel_title(bounds, f"bounds, {title}", f"{len(names)} layers, light: first, dark: last")
        facts = f"all layers, last: {total.iloc[-1]:.2f}, with {held:.1f}% of the bytes kept elsewhere too"
        panel_title(ratios, "ratios", facts)
    return figure
