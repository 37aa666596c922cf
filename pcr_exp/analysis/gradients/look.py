"""What the figures of gradient compression share: a colour, a shape and a place for every codec."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.colors import to_hex

from pcr_exp.analysis.core.cells import span
from pcr_exp.analysis.core.look import INK, fallback_look
from pcr_exp.analysis.core.runs_table import per_setting
from pcr_exp.analysis.gradients.table import PANEL_KEYS, SERIES_KEYS

# None is a scan level's colour (`look.OTHER_LOOKS`); colormaps for those that have a number (`_depth`).
_LOOKS = {
    "none": (INK, "s"),
    "fp16": ("#6b6b6b", "D"),
    "bf16": ("#9a9a9a", "d"),
    "int8": ("#8c6d31", "^"),
    "topk": ("Greens", "v"),
    "powersgd": ("#a0a000", "P"),
    "ternary_stochastic": ("#005f3c", "<"),
    "onebit": ("#56B4E9", ">"),
    "threelc": ("Blues", "o"),
}


def look_of(codec: Mapping[Any, Any]) -> dict[str, Any]:
    """Colour and marker of a row's codec (columns CODEC), as matplotlib's keywords."""
    color, marker = _LOOKS.get(codec["codec_name"]) or fallback_look(codec["codec_name"])
    if color in mpl.colormaps:
        color = to_hex(mpl.colormaps[color](_depth(codec)))
    return {"color": color, "marker": marker}


def _depth(codec: Mapping[Any, Any]) -> float:
    """From light to dark: top-k with the share that is sent, 3LC with s."""
    if codec["codec_name"] == "topk":
        return 0.35 + 0.3 * math.log10(max(1, 100 * codec["fraction"]))
    return 0.35 + 0.6 * (codec["sparsity"] - 1)


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows: 32-bit floats, our codecs, 3LC by rising s (without zero runs before with them), others."""
    names = [*_LOOKS, *sorted(set(table["codec_name"]) - set(_LOOKS))]
    amount = table["sparsity"].fillna(table["fraction"]).fillna(table["rank"]).fillna(0)
    ranked = table.assign(_name=table["codec_name"].map(names.index), _amount=amount)
    ranked = ranked.sort_values(["_name", "_amount", "zero_run"], kind="stable")
    return ranked.drop(columns=["_name", "_amount"])


def network_name(bandwidth_mbit_per_s: float, latency_ms: float = 0) -> str:
    """A link in words: `10 Mbit/s`, with the latency if there is one."""
    rate = f"{bandwidth_mbit_per_s:,g} Mbit/s" if math.isfinite(bandwidth_mbit_per_s) else "loopback"
    return f"{rate}, {latency_ms:g} ms" if latency_ms else rate


def gradient_panels(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(title, subtitle, rows) of every group of comparable runs, of a table with PANEL_KEYS and `n`."""
    for title, group, rows in per_setting(table, PANEL_KEYS):
        yield title, f"{group['world_size']} processes, n = {span(rows['n'])}", rows


def gradient_links(table: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """(title, subtitle, link, rows in order) of every panel's runs that differ in the codec alone."""
    for title, subtitle, rows in gradient_panels(table):
        for _, alike in in_order(rows).groupby([key for key in SERIES_KEYS if key != "codec"], sort=True):
            first = alike.iloc[0]
            link = network_name(first["bandwidth_mbit_per_s"], first["latency_ms"])
            yield title, subtitle, f"{link}, {first['mode']}", alike
