"""Our baseline records beside other loaders that shrink crops as they do: ratios, repeat by repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.cells import markdown_table, median_cell
from pcr_exp.analysis.throughput.table import free_running, on_all_cores, unlimited
from pcr_exp.measuring.peers.registry import differs_of, filter_of, is_ours, title_of

OURS = "baseline"
"""The same bytes as the others read, in records."""
_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "baseline records, beside": lambda row: title_of(row["loader"]),
    "who filters": lambda row: "both" if row["filtered"] else "neither",
    "images/s, ours / theirs": median_cell("images_per_s", "{:.2f}".format),
    "CPU per image, theirs / ours": median_cell("cpu", "{:.2f}".format),
    "what differs": lambda row: differs_of(row["loader"]),
}


def beside_to_markdown(rows: pd.DataFrame) -> str:
    """A table with a line per peer; empty where there are no rows of baseline records or of peers.

    Peers that filter stand beside ours with the resize filter, others beside ours without.

    Args:
        rows: `ROW_COLUMNS`, one per measurement.
    """
    free = on_all_cores(unlimited(free_running(rows)))
    filters = [filter_of(*names) for names in zip(free["loader"], free["decode"], strict=True)]
    free = free.assign(filtered=[name != "none" for name in filters])
    ours = free[free["loader"] == OURS].drop_duplicates(["repeat", "filtered"])
    theirs = free[~free["loader"].map(is_ours)]
    pairs = theirs.merge(ours, on=["repeat", "filtered"], suffixes=("", "_ours"))
    if pairs.empty:
        return ""
    pairs = pairs.assign(
        images_per_s=pairs["images_per_s_ours"] / pairs["images_per_s"],
        cpu=pairs["cpu_s_per_image"] / pairs["cpu_s_per_image_ours"],
    )
    by_loader = pairs.groupby("loader", sort=False)
    lines = pd.DataFrame({"n": by_loader.size(), "filtered": by_loader["filtered"].first()})
    for measure in ("images_per_s", "cpu"):
        for statistic in ("median", "min", "max"):
            lines[f"{measure}_{statistic}"] = by_loader[measure].agg(statistic)
    return markdown_table(lines.reset_index(), _COLUMNS)
