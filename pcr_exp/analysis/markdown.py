"""Rows as a Markdown table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

NOTHING = "-"


def markdown_table(rows: pd.DataFrame, columns: Mapping[str, Callable[[Mapping[Any, Any]], str]]) -> str:
    """A line per row; `columns` gives each header's cell. The first column is aligned left."""
    header = "| " + " | ".join(columns) + " |\n|" + " --- |" + " ---: |" * (len(columns) - 1)
    body = [
        "| " + " | ".join(cell(row) for cell in columns.values()) + " |" for row in rows.to_dict("records")
    ]
    return "\n".join([header, *body])


def three_figures(value: float) -> str:
    """A number for people; `-` where there is none, and where nothing limits it."""
    return NOTHING if not math.isfinite(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
