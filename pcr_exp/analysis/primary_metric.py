"""The primary metric of runs: `score` in frames, its own name in files, and readable words on pages.

The column `headline` of a frame names the metric of its scores (`pcr_exp.training.task`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from pcr_exp.training.task import TOP1, PrimaryMetric, primary_metric_named

_IN_FILES = {"timing_excluded_because": "no_seconds", "target_excluded_because": "no_target"}
_SCORE = re.compile(r"(?<![a-z])score(?![a-z])")


def metric_of(rows: pd.DataFrame) -> PrimaryMetric:
    """Return the metric of the scores of comparable rows; top-1 if there are no rows."""
    return primary_metric_named(str(rows["headline"].iloc[0])) if len(rows) else TOP1


def chance_level_of(row: Mapping[Any, Any]) -> float | None:
    """Return the chance level, the score of a model that has learned nothing; None if it is unknown.

    `row` has `headline`, `majority_share` and `num_classes`.
    """
    share, classes = row["majority_share"], row["num_classes"]
    return primary_metric_named(row["headline"]).guessed(
        None if pd.isna(share) else float(share), None if pd.isna(classes) else int(classes)
    )


def scored(row: Mapping[str, Any], headline: str) -> dict[str, Any]:
    """Return a run's row with its primary metric renamed to `val_score`; the order of columns is kept."""
    return {"val_score" if key == f"val_{headline}" else key: value for key, value in row.items()}


def as_written(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the column names of files: `final_top1` for `final_score` if all use top-1.

    If rows have different primary metrics, columns keep the name `score`, and `headline` names the metric.
    Columns of the reporting rules keep their names of version 0.2.
    """
    frame = frame.rename(columns=_IN_FILES)
    if "headline" not in frame or frame["headline"].nunique() != 1:
        return frame
    name = str(frame["headline"].iloc[0])
    renamed = {column: _SCORE.sub(name, str(column)) for column in frame.columns}
    return frame.drop(columns="headline").rename(columns=renamed)
