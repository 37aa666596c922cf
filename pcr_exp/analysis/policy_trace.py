"""What a scan policy decided over a run, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from pcr_exp.runs.rows import Row

TRACE_COLUMNS = [
    *("epoch", "step", "seconds", "group", "measure", "candidate", "score"),
    *("bytes_saved", "saved_share", "probe_s", "probe_bytes"),
]


def policy_trace(rows: Sequence[Row]) -> pd.DataFrame:
    """One row per decision and candidate that was compared; one without `candidate` where none was.

    `epoch` is the number of epochs completed, `seconds` are train_s + wait_s + probe_s when it was decided.
    `bytes_saved` is what the records trained on until then hold beyond what was read of them, `saved_share`
    the same as a share of all that they hold, 0..1.
    """
    trace = [entry for row in rows if row["kind"] == "policy" for entry in _entries(row)]
    return pd.DataFrame(trace, columns=TRACE_COLUMNS)


def _entries(row: Row) -> Iterator[dict[str, Any]]:
    full_bytes = row["bytes_saved"] + row["record_bytes"]
    decision = {
        **row,
        "seconds": row["train_s"] + row["wait_s"] + row["probe_s"],
        "saved_share": row["bytes_saved"] / full_bytes if full_bytes else 0.0,
    }
    for candidate, score in row["scores"].items() or [(None, None)]:
        entry = {**decision, "candidate": None if candidate is None else int(candidate), "score": score}
        yield {column: entry[column] for column in TRACE_COLUMNS}
