"""The primary metric of runs: `score` in frames, its own name in files, and words for people.

A frame says in its column `headline` which metric the scores are (`pcr_exp.training.task`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from pcr_exp.training.task import TOP1, Headline, headline_called

_IN_FILES = {"timing_excluded_because": "no_seconds", "target_excluded_because": "no_target"}
_SCORE = re.compile(r"(?<![a-z])score(?![a-z])")


def metric_of(rows: pd.DataFrame) -> Headline:
    """Return the metric that the scores of some comparable rows are."""
    return headline_called(str(rows["headline"].iloc[0])) if len(rows) else TOP1


def chance_level_of(row: Mapping[Any, Any]) -> float | None:
    """Return what a model reaches that has learned nothing; None where it is not known.

    `row` has `headline`, `majority_share` and `num_classes`.
    """
    share, classes = row["majority_share"], row["num_classes"]
    return headline_called(row["headline"]).guessed(
        None if pd.isna(share) else float(share), None if pd.isna(classes) else int(classes)
    )


def scored(row: Mapping[str, Any], headline: str) -> dict[str, Any]:
    """Return a run's row with its headline as `val_score`, in its place."""
    return {"val_score" if key == f"val_{headline}" else key: value for key, value in row.items()}


def as_written(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame as files have it: with `final_top1` for `final_score` where all are judged by top-1.

    Where rows are judged by different metrics, columns stay called `score`, and `headline` says which. The
    reporting rules' columns have their names of version 0.2.
    """
    frame = frame.rename(columns=_IN_FILES)
    if "headline" not in frame or frame["headline"].nunique() != 1:
        return frame
    name = str(frame["headline"].iloc[0])
    renamed = {column: _SCORE.sub(name, str(column)) for column in frame.columns}
    return frame.drop(columns="headline").rename(columns=renamed)
