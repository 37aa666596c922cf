"""What the figures of data echoing share: a colour, a shape and a name for every variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.cells import span
from pcr_exp.analysis.core.look import INK, fallback_look
from pcr_exp.analysis.core.runs_table import per_setting
from pcr_exp.analysis.echo.table import BASELINE, PANEL_KEYS

# None is a scan level's colour (`look.OTHER_LOOKS`); shapes for readers without colour.
_LOOKS = {
    BASELINE: (INK, "s"),
    "batch": ("#56b4e9", "D"),
    "example_after": ("#009E73", "^"),
    "example_before": ("#0072B2", "o"),
    "finer repeats": ("#8c6d31", "P"),
}
_DASHES = ["-", (0, (1, 1)), (0, (4, 2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1))]


def variant_of(row: Mapping[Any, Any]) -> str:
    """`example_before` whose repeats read on is a variant of its own."""
    return "finer repeats" if row["repeat_groups"] else str(row["variant"])


def look_of(variant: str) -> dict[str, str]:
    """Colour and marker of a variant, as matplotlib's keywords."""
    color, marker = _LOOKS.get(variant) or fallback_look(variant)
    return {"color": color, "marker": marker}


def dashes_of(variant: str) -> Any:
    """Dashes of a variant's line where colour stands for something else; dotted for one that is not ours."""
    return dict(zip(_LOOKS, _DASHES, strict=True)).get(variant, ":")


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
    """Rows of `tuned`: the baseline, batches, samples after and before augmentation, then other variants."""
    variants = [*_LOOKS, *sorted(set(summary["variant"]) - set(_LOOKS))]
    rank = [variants.index(variant_of(row)) for row in summary.to_dict("records")]
    return (
        summary.assign(_rank=rank)
        .sort_values(["_rank", "factor", "buffer", "batch_size", "scan"], kind="stable")
        .drop(columns="_rank")
    )


def echo_panels(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(title, subtitle, rows) of every group of comparable runs, of a table with PANEL_KEYS."""
    for title, group, rows in per_setting(table, PANEL_KEYS):
        yield title, f"storage {group['storage']}, {facts(rows)}", rows


def facts(rows: pd.DataFrame) -> str:
    """Number of seeds, and whether learning rates were tuned."""
    rates = int(rows["num_rates"].min())
    tuned = f"best of {rates} learning rates" if rates > 1 else "learning rate not tuned"
    return f"n = {span(rows['n'])}; {tuned}"
