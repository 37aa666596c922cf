"""Codecs side by side in Markdown, with the published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.figures.gradient_look import gradient_links
from pcr_exp.analysis.markdown import NOTHING, markdown_table, three_figures
from pcr_exp.analysis.published_3lc import SPEEDUP_AT_1_GBIT, published

_COLUMNS = {
    "codec": lambda row: row["codec"],
    "updates": lambda row: f"{row['updates']:,}",
    "n": lambda row: str(row["n"]),
    "bits per value": lambda row: three_figures(row["bits_per_value_mean"]),
    "of large tensors": lambda row: three_figures(row["coded_bits_mean"]),
    "ratio": lambda row: three_figures(row["ratio"]),
    "kB on the wire per update": lambda row: three_figures(row["wire_bytes_per_update_mean"] / 1e3),
    "images/s": lambda row: _spread(row, "images_per_s", 1, three_figures),
    "best top-1, %": lambda row: _spread(row, "best_top1", 100, "{:.1f}".format),
    "s to target": lambda row: _seconds(row),
    "speed-up": lambda row: three_figures(row["speedup"]),
    "published: bits per value": lambda row: three_figures(published(row["codec"]).bits_per_value),
    "ratio there": lambda row: three_figures(published(row["codec"]).ratio),
    "speed-up there, 10 Mbit/s": lambda row: three_figures(published(row["codec"]).speedup_at_10_mbit),
    "top-1 there, %": lambda row: _percent(published(row["codec"]).top1),
    "how sure": lambda row: published(row["codec"]).certainty,
}


def gradients_to_markdown(table: pd.DataFrame) -> str:
    """A table per panel, mode and network of `gradient_table`."""
    parts = []
    for title, _, link, rows in gradient_links(table):
        target = f"target {100 * rows['target_top1'].iloc[0]:g}%"
        parts += [f"**{title}, {link}**, {target}", markdown_table(rows, _COLUMNS)]
    parts.append(
        "bits per value: all values that processes encoded, pushed and pulled, with what frames messages; of "
        "large tensors: those that went through the codec (small tensors are sent as float32 and were not "
        "counted in the paper's table, as far as is known); ratio: 32 over that. images/s: over training "
        "and waiting after the first logged updates; speed-up: over `none` for as many updates. Published: "
        "ResNet-110, CIFAR-10, 10 GPU workers with a parameter server; at 1 Gbit/s 3LC's speed-up was about "
        f"{SPEEDUP_AT_1_GBIT} (remembered, medium). Brackets: smallest and largest of n seeds."
    )
    return "\n\n".join(parts) + "\n"


def _spread(row: Mapping[Any, Any], measure: str, factor: float, form: Any) -> str:
    mean, low, high = (form(factor * row[f"{measure}_{part}"]) for part in ("mean", "min", "max"))
    return mean if row["n"] == 1 else f"{mean} ({low} to {high})"


def _seconds(row: Mapping[Any, Any]) -> str:
    if row["num_reached"] < row["n"]:
        return "not reached" if row["n"] == 1 else f"reached by {row['num_reached']} of {row['n']}"
    return _spread(row, "time_to_target_s", 1, three_figures)


def _percent(share: float) -> str:
    return NOTHING if math.isnan(share) else f"{100 * share:.2f}"
