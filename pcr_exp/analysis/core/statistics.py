"""The statistics that every table of runs is made of: spreads, 95 % intervals, differences by seed, lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

CONFIDENCE = 0.95
NEVER = float("nan")
"""Of a time or a count to a target that was not reached, or of which nothing may be said."""
LEAST_LEVELS = 5
"""Fewer levels of quality than this have no line: three or four lie on one too easily."""


def half_width(values: Iterable[float]) -> float:
    """Half of the 95 % interval of a mean: Student's t over the values; NaN for fewer than two, or if one is.

    mean ± half_width holds the true mean of 95 of 100 such experiments, if values scatter normally.
    """
    found = np.asarray(list(values), dtype=float)
    if len(found) < 2:
        return NEVER
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(found) - 1) * stats.sem(found))


def spread(runs: pd.DataFrame, measures: Iterable[str]) -> dict[str, float]:
    """`<measure>_mean`, `_min` and `_max` over runs; NaN where one of them has none: no mean of the lucky."""
    found = {}
    for measure in measures:
        values = runs[measure].astype(float)
        found[f"{measure}_mean"] = values.mean(skipna=False)
        found[f"{measure}_min"], found[f"{measure}_max"] = values.min(skipna=False), values.max(skipna=False)
    return found


def distinct_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """The first run of each seed: runs that differ in workers or hardware alone learned the same."""
    return runs.drop_duplicates("seed")


def paired_difference(runs: pd.DataFrame, reference: pd.DataFrame, measure: str) -> dict[str, float]:
    """A measure of `runs` less that of the run of the same seed in `reference`, over the seeds of both.

    Returns:
        `difference_n`: how many seeds both have; `difference_mean`; `difference_ci95`: half of its 95 %
        interval (`half_width`), NaN for fewer than two.
    """
    ours, theirs = (
        distinct_seeds(some).set_index("seed")[measure].astype(float) for some in (runs, reference)
    )
    differences = (ours - theirs).dropna()
    return {
        "difference_n": len(differences),
        "difference_mean": float(differences.mean()),
        "difference_ci95": half_width(differences),
    }


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


@dataclass(frozen=True, slots=True)
class Line:
    """y = slope x x + intercept, with what is known of the slope."""

    slope: float
    intercept: float
    slope_ci95: float
    """Half of the slope's 95 % interval."""
    r: float
    """Pearson's; NaN where all y are alike."""


def line_through(levels: pd.DataFrame, x: str, y: str) -> Line | None:
    """Least squares through the means of levels, one point each; None for fewer than LEAST_LEVELS.

    The slope's interval is Student's t over the levels' distances from the line (levels - 2 degrees of
    freedom): what is uncertain is whether it is a line, and more seeds of the same levels do not tell.
    """
    if levels[x].nunique() < LEAST_LEVELS:
        return None
    xs, ys = levels[x].to_numpy(float), levels[y].to_numpy(float)
    found = stats.linregress(xs, ys)
    width = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(xs) - 2) * found.stderr)
    r = float(found.rvalue) if np.ptp(ys) > 0 else math.nan
    return Line(float(found.slope), float(found.intercept), width, r)
