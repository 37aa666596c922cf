"""What the figures of data echoing share: a colour, a shape and a name for every variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.look import INK
from pcr_exp.analysis.echo.table import BASELINE, PANEL_KEYS

# Colours of Okabe and Ito (2008): they differ for colour-blind eyes too; shapes for readers without colour.
_LOOKS = {
    BASELINE: (INK, "s"),
    "batch": ("#E69F00", "D"),
    "example_after": ("#009E73", "^"),
    "example_before": ("#0072B2", "o"),
    "finer repeats": ("#CC79A7", "P"),
}
ORDER = list(_LOOKS)


def variant_of(row: Mapping[Any, Any]) -> str:
    """`example_before` whose repeats read on is a variant of its own."""
    return "finer repeats" if row["repeat_groups"] else str(row["variant"])


def look_of(variant: str) -> dict[str, str]:
    """Colour and marker, as matplotlib's keywords."""
    color, marker = _LOOKS[variant]
    return {"color": color, "marker": marker}


def name_of(row: Mapping[Any, Any], *, with_factor: bool = False) -> str:
    """A variant in words, with its buffer and the groups that its repeats read on to."""
    words = [variant_of(row).replace("_", " ")]
    if with_factor and row["factor"] != 1:
        words.append(f"e = {row['factor']:g}")
    if row["buffer"] > 1:
        words.append(f"buffer {row['buffer']}")
    if row["repeat_groups"]:
        words.append(f"to group {row['repeat_groups'].replace(' ', ', ')}")
    return ", ".join(words)


def in_order(summary: pd.DataFrame) -> pd.DataFrame:
    """Rows of `tuned`: the baseline first, then batches, examples after and before augmentation."""
    rank = [ORDER.index(variant_of(row)) for row in summary.to_dict("records")]
    return (
        summary.assign(_rank=rank)
        .sort_values(["_rank", "factor", "buffer", "batch_size", "scan"], kind="stable")
        .drop(columns="_rank")
    )


def echo_panels(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(title, subtitle, rows) of every group of comparable runs, of a table with PANEL_KEYS."""
    for (dataset, label, model, storage, _), rows in table.groupby(PANEL_KEYS, sort=True):
        yield f"{dataset} · {label} · {model}", f"storage {storage}, {facts(rows)}", rows


def facts(rows: pd.DataFrame) -> str:
    """Number of seeds, and whether learning rates were tuned."""
    low, high = rows["n"].min(), rows["n"].max()
    seeds = f"n = {low}" if low == high else f"n = {low} to {high}"
    rates = int(rows["num_rates"].min())
    return f"{seeds}; {f'best of {rates} learning rates' if rates > 1 else 'learning rate not tuned'}"
