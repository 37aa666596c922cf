"""Time to a target: derived from the rows of a run, never logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pcr_exp.analysis.core.permitted import facts_of
from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.statistics import NEVER


def first_reached(rows: Iterable[Mapping[str, Any]], target_top1: float) -> Mapping[str, Any] | None:
    """The first evaluation with val_top1 >= target_top1."""
    evaluations = (row for row in rows if row["kind"] == "eval")
    return next((row for row in evaluations if row["val_top1"] >= target_top1), None)


def seconds_of(row: Mapping[str, Any]) -> float:
    """Seconds that count at a row: training, waiting for data and probes; evaluation is off the clock."""
    return float(row["train_s"] + row["wait_s"] + row["probe_s"])


def time_to_accuracy(rows: Iterable[Mapping[str, Any]], target_top1: float) -> float:
    """`seconds_of` the first eval row with val_top1 >= target_top1; NaN if there is none."""
    first = first_reached(rows, target_top1)
    return NEVER if first is None else seconds_of(first)


def reached_of(run: Run) -> dict[str, float]:
    """`epochs_to_target` and `time_to_target_s`, each NaN where it may not be said or was not reached."""
    facts = facts_of(run)
    row = None if facts["no_target"] else first_reached(run.rows, run.manifest.target)
    return {
        "epochs_to_target": NEVER if row is None else row["epoch"],
        "time_to_target_s": NEVER if row is None or facts["no_seconds"] else seconds_of(row),
    }
