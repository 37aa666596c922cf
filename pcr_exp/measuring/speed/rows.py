"""Rows of a benchmark on disk, and the Markdown table that follows from them.

Columns left of `repeat` name the case; those right of it were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd


def save_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Append to a CSV, in place of earlier rows of the same cases; prints the table of these."""
    frame = pd.DataFrame(rows)
    print(to_markdown(frame))
    if path.exists():
        earlier, case = pd.read_csv(path), case_columns(frame)
        measured = set(frame[case].itertuples(index=False, name=None))
        kept = [row not in measured for row in earlier[case].itertuples(index=False, name=None)]
        frame = pd.concat([earlier[kept], frame])
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, float_format="%.6g")


def case_columns(frame: pd.DataFrame) -> list[str]:
    """What names a case."""
    columns = list(frame.columns)
    return columns[: columns.index("repeat")]


def to_markdown(frame: pd.DataFrame) -> str:
    """One line per case, in the order of the rows: n, then median (smallest to largest) of each measure."""
    case = case_columns(frame)
    measures = [name for name in frame.columns if name not in case and name != "repeat"]
    lines = [f"| {' | '.join([*case, 'n', *measures])} |", "|" + " ---: |" * (len(case) + 1 + len(measures))]
    for _, rows in frame.groupby(case, sort=False, dropna=False):
        first = [_show(rows[name].iloc[0]) for name in case]
        lines.append(
            f"| {' | '.join([*first, str(len(rows)), *(_spread(rows[name]) for name in measures)])} |"
        )
    return "\n".join(lines)


def _spread(values: pd.Series) -> str:
    median, low, high = (_show(value) for value in (values.median(), values.min(), values.max()))
    return median if low == high else f"{median} ({low} to {high})"


def _show(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
