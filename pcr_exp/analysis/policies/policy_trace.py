"""What a scan policy decided over a run, as a table, and what it saved over the whole of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.statistics import NEVER, seconds_of
from pcr_exp.runs.rows import Row

TRACE_COLUMNS = [
    *("epoch", "step", "seconds", "group", "measure", "candidate", "score"),
    *("record_bytes", "probe_s", "probe_bytes", "run_saved_bytes", "run_saved_share"),
]


def policy_trace(rows: Sequence[Row], full_image_bytes: float | None = None) -> pd.DataFrame:
    """One row per decision and candidate that was compared; one without `candidate` where none was.

    `epoch` is the number of epochs completed; `seconds` (train_s + wait_s + probe_s), `record_bytes` and the
    probes' columns are as it was decided. `run_saved_bytes` and `run_saved_share` are of the whole run
    (`saved_by`), the same in every row.
    """
    if not any(row["kind"] == "policy" for row in rows):
        return pd.DataFrame(columns=TRACE_COLUMNS)
    saved_bytes, saved_share = saved_by(rows, full_image_bytes)
    whole = {"run_saved_bytes": saved_bytes, "run_saved_share": saved_share}
    trace = [entry for row in rows if row["kind"] == "policy" for entry in _entries(row, whole)]
    return pd.DataFrame(trace, columns=TRACE_COLUMNS)


def saved_by(rows: Sequence[Row], full_image_bytes: float | None = None) -> tuple[float, float]:
    """Bytes that a run did not read, probes counted as read: of all scans of all its images, and their share.

    NaN where that is not known: rows from before it was counted tell it after the first decision that came
    after an image, or with `full_image_bytes`, the mean bytes per image of all scans.
    """
    if not rows:
        return NEVER, NEVER
    last = rows[-1]
    full_bytes = last.get("full_bytes")
    if full_bytes is None:
        per_image = full_image_bytes or _full_image_bytes(rows)
        full_bytes = NEVER if per_image is None else per_image * last["samples_seen"]
    saved = full_bytes - last["record_bytes"] - last["probe_bytes"]
    return saved, saved / full_bytes if full_bytes else NEVER


def _full_image_bytes(rows: Sequence[Row]) -> float | None:
    decisions = [row for row in rows if row["kind"] == "policy" and row["samples_seen"]]
    if not decisions:
        return None
    last = decisions[-1]
    return float((last["bytes_saved"] + last["record_bytes"]) / last["samples_seen"])


def _entries(row: Row, whole: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    decision = {**row, **whole, "seconds": seconds_of(row)}
    for candidate, score in row["scores"].items() or [(None, None)]:
        entry = {**decision, "candidate": None if candidate is None else int(candidate), "score": score}
        yield {column: entry[column] for column in TRACE_COLUMNS}
