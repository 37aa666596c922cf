"""The statistics that every table of runs is made of: spreads, 95 % intervals, differences by seed, lines."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

CONFIDENCE = 0.95
NEVER = float("nan")
"""Of a time or a count to a target that was not reached, or of which nothing may be said."""


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
