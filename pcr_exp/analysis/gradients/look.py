"""What the figures of gradient compression share: a colour, a shape and a place for every codec."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.colors import to_hex

from pcr_exp.analysis.core.look import INK
from pcr_exp.analysis.gradients.table import PANEL_KEYS, SERIES_KEYS

# Colours of Okabe and Ito (2008) and greys for the others; colormaps for those that have a number (`_depth`).
_LOOKS = {
    "none": (INK, "s"),
    "fp16": ("#6b6b6b", "D"),
    "bf16": ("#9a9a9a", "d"),
    "int8": ("#E69F00", "^"),
    "topk": ("Greens", "v"),
    "powersgd": ("#CC79A7", "P"),
    "ternary_stochastic": ("#D55E00", "<"),
    "onebit": ("#56B4E9", ">"),
    "threelc": ("Blues", "o"),
}


def look_of(codec: str) -> dict[str, Any]:
    """Colour and marker of a codec by its name in the table, as matplotlib's keywords."""
    color, marker = _LOOKS[_family(codec)]
    if color in mpl.colormaps:
        color = to_hex(mpl.colormaps[color](_depth(codec)))
    return {"color": color, "marker": marker}


def _depth(codec: str) -> float:
    """From light to dark: topk with the share that is sent, 3LC with s."""
    if _family(codec) == "topk":
        return 0.35 + 0.3 * math.log10(max(1, _number(codec)))
    return 0.35 + 0.6 * (_number(codec) - 1)


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows, 32-bit floats first, 3LC by rising s last; without zero-run encoding before with it."""
    families = list(_LOOKS)
    ranks = [(families.index(_family(codec)), _number(codec), "ZRE" not in codec) for codec in table["codec"]]
    return table.iloc[sorted(range(len(ranks)), key=ranks.__getitem__)]


def network_name(bandwidth_mbit_per_s: float, latency_ms: float = 0) -> str:
    """A link in words: `10 Mbit/s`, with the latency if there is one."""
    rate = f"{bandwidth_mbit_per_s:,g} Mbit/s" if math.isfinite(bandwidth_mbit_per_s) else "loopback"
    return f"{rate}, {latency_ms:g} ms" if latency_ms else rate


def gradient_panels(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(title, subtitle, rows) of every group of comparable runs, of a table with PANEL_KEYS and `n`."""
    for (dataset, label, model, world_size, _), rows in table.groupby(PANEL_KEYS, sort=True):
        low, high = rows["n"].min(), rows["n"].max()
        seeds = f"n = {low}" if low == high else f"n = {low} to {high}"
        yield f"{dataset} · {label} · {model}", f"{world_size} processes, {seeds}", rows


def gradient_links(table: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """(title, subtitle, link, rows in order) of every panel's runs that differ in the codec alone."""
    for title, subtitle, rows in gradient_panels(table):
        for _, alike in in_order(rows).groupby([key for key in SERIES_KEYS if key != "codec"], sort=True):
            first = alike.iloc[0]
            link = network_name(first["bandwidth_mbit_per_s"], first["latency_ms"])
            yield title, subtitle, f"{link}, {first['mode']}", alike


def _family(codec: str) -> str:
    return codec.split()[0]


def _number(codec: str) -> float:
    """3LC's s, or another codec's share or rank; 0 for a codec without any."""
    digits = "".join(mark for mark in codec.split(",")[0] if mark.isdigit() or mark == ".")
    return float(digits) if " " in codec else 0.0
