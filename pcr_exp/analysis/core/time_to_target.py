"""Time to a target: derived from the rows of a run, never logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pcr_exp.analysis.core.permitted import NEVER
from pcr_exp.analysis.core.read_runs import Run, evaluations_at

REACHED = ["epochs_to_target", "fresh_to_target", "bytes_to_target", "time_to_target_s"]
"""What a run took to its target (`reached_of`)."""


def seconds_of(row: Any) -> Any:
    """Seconds that count at a row, or at each row of a table: training, waiting for data, and probes.

    Evaluation is off the clock.
    """
    return row["train_s"] + row["wait_s"] + row["probe_s"]


def first_reached(rows: Iterable[Mapping[str, Any]], target_score: float) -> Mapping[str, Any] | None:
    """The first evaluation at full fidelity with val_score >= target_score."""
    evaluations = evaluations_at("full", rows)
    return next((row for row in evaluations if row["val_score"] >= target_score), None)


def reached_of(run: Run, no_target: str, no_seconds: str) -> dict[str, float]:
    """REACHED of a run: epochs, fresh images, bytes of records, and seconds.

    They are those of the first evaluation at the target; NaN where none reaches it, or where it may not be
    said.

    Args:
        run: A finished run.
        no_target: Why no time to the target may be said (`permitted.facts_of`); empty if it may.
        no_seconds: Why no seconds may be said; empty if they may.
    """
    row = None if no_target else first_reached(run.rows, run.manifest.target)
    if row is None:
        return dict.fromkeys(REACHED, NEVER)
    seconds = NEVER if no_seconds else seconds_of(row)
    return dict(zip(REACHED, (row["epoch"], row["samples_seen"], row["record_bytes"], seconds), strict=True))
