"""Statistics for all tables of runs: spreads, intervals, and differences paired by seed or fold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pcr_exp.analysis.intervals import half_of
from pcr_exp.analysis.reporting_rules import NAN, speedup_excluded_because

REPEAT = ("seed", "fold")
"""Columns that differ between repeats of one setting and level; a table without folds lacks the second."""

SEEDS_ALONE = "t over seeds alone"
"""Kind of an interval without the variance over images, for runs that saved no predictions per image."""

DIFFERENCE = [f"difference_{part}" for part in ("n", "mean", "ci95", "freedom", "interval")]
"""Columns of a difference (`paired_difference`)."""


def half_width(values: Iterable[float]) -> float:
    """Return half the 95 % Student's t interval of a mean; NaN for fewer than two values, or if one is NaN.

    If values are normal, mean ± half_width contains the true mean in 95 of 100 such experiments.
    """
    found = np.asarray(list(values), dtype=float)
    return float(half_of(stats.sem(found), len(found) - 1)) if len(found) > 1 else NAN


def spread(runs: pd.DataFrame, measures: Iterable[str]) -> dict[str, float]:
    """Return `<measure>_mean`, `_min` and `_max` over runs; NaN if any is missing, to avoid bias."""
    found = {}
    for measure in measures:
        values = runs[measure].astype(float)
        found[f"{measure}_mean"] = values.mean(skipna=False)
        found[f"{measure}_min"], found[f"{measure}_max"] = values.min(skipna=False), values.max(skipna=False)
    return found


def repeat_of(runs: pd.DataFrame) -> list[str]:
    """Return the columns of REPEAT that a table has."""
    return [key for key in REPEAT if key in runs]


def name_of_repeats(runs: pd.DataFrame) -> str:
    """Return what tells repeats apart: `seed`, `fold` or, if a fold has several seeds, `run`."""
    repeats = runs[repeat_of(runs)].drop_duplicates()
    if "fold" not in repeats or not (repeats["fold"] != "").any():
        return "seed"
    return "fold" if repeats["fold"].is_unique else "run"


def distinct_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the first run of each seed (and fold); the others differ in workers or hardware alone."""
    return runs.drop_duplicates(repeat_of(runs))


def by_repeat(runs: pd.DataFrame) -> pd.DataFrame:
    """Return `distinct_seeds`, indexed by REPEAT."""
    return distinct_seeds(runs).set_index(repeat_of(runs))


def paired_difference(runs: pd.DataFrame, reference: pd.DataFrame, measure: str) -> dict[str, Any]:
    """Return the difference of a measure between `runs` and `reference`, paired by seed (and fold).

    Returns:
        `difference_n`: the number of pairs; `difference_mean`; `difference_ci95`: half its 95 % interval
        (`half_width`), NaN for fewer than two pairs; `difference_freedom`: degrees of freedom of that t;
        `difference_interval`: the kind of interval, SEEDS_ALONE, or empty for fewer than two pairs.
    """
    ours, theirs = (by_repeat(some)[measure].astype(float) for some in (runs, reference))
    differences = (ours - theirs).dropna()
    return {
        "difference_n": len(differences),
        "difference_mean": float(differences.mean()),
        "difference_ci95": half_width(differences),
        "difference_freedom": float(len(differences) - 1) if len(differences) > 1 else NAN,
        "difference_interval": SEEDS_ALONE if len(differences) > 1 else "",
    }


def describe_interval(rows: pd.DataFrame) -> str:
    """Describe the kinds of intervals of the differences in some rows, with their degrees of freedom."""
    known = rows[rows["difference_interval"].fillna("").astype(bool)]
    parts = []
    for interval, alike in known.groupby("difference_interval", sort=True):
        low, high = (
            f"{end:.3g}" for end in (alike["difference_freedom"].min(), alike["difference_freedom"].max())
        )
        parts.append(f"{interval}, {low if low == high else f'{low} to {high}'} degrees of freedom")
    if not parts:
        return "none: n = 1" if (rows["difference_n"] == 1).any() else "none: nothing to compare with"
    return " / ".join(parts)


def paired_ratios(over: pd.DataFrame, under: pd.DataFrame, measure: str) -> pd.Series:
    """Return the ratio of a measure in `over` to that in `under`, for each seed (and fold) that both have."""
    ours, theirs = (by_repeat(some)[measure].astype(float) for some in (over, under))
    return (ours / theirs).dropna()


def paired_ratio(over: pd.DataFrame, under: pd.DataFrame, measure: str) -> dict[str, float]:
    """Return `speedup`, the mean of `paired_ratios`, with `speedup_min` and `speedup_max`.

    All are NaN if no speed-up of these runs may be shown (`reporting_rules.speedup_excluded_because`).
    """
    if speedup_excluded_because(over, under):
        return dict.fromkeys(("speedup", "speedup_min", "speedup_max"), NAN)
    ratios = paired_ratios(over, under, measure)
    return {"speedup": ratios.mean(), "speedup_min": ratios.min(), "speedup_max": ratios.max()}
