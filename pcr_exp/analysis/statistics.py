"""The statistics that every table of runs is made of: spreads, intervals, differences by seed or fold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pcr_exp.analysis.intervals import half_of
from pcr_exp.analysis.reporting_rules import NAN, may_say_speedup

REPEAT = ("seed", "fold")
"""Columns that differ between repeats of one setting and level; a table without folds lacks the second."""

SEEDS_ALONE = "t over seeds alone"
"""An interval that knows nothing of other images: of runs that kept no predictions per image."""

DIFFERENCE = [f"difference_{part}" for part in ("n", "mean", "ci95", "freedom", "interval")]
"""Columns of a difference (`paired_difference`)."""


def half_width(values: Iterable[float]) -> float:
    """Half of the 95 % interval of a mean: Student's t over the values; NaN for fewer than two, or if one is.

    mean ± half_width holds the true mean of 95 of 100 such experiments, if values scatter normally.
    """
    found = np.asarray(list(values), dtype=float)
    return float(half_of(stats.sem(found), len(found) - 1)) if len(found) > 1 else NAN


def spread(runs: pd.DataFrame, measures: Iterable[str]) -> dict[str, float]:
    """`<measure>_mean`, `_min` and `_max` over runs; NaN where one of them has none: no mean of the lucky."""
    found = {}
    for measure in measures:
        values = runs[measure].astype(float)
        found[f"{measure}_mean"] = values.mean(skipna=False)
        found[f"{measure}_min"], found[f"{measure}_max"] = values.min(skipna=False), values.max(skipna=False)
    return found


def repeat_of(runs: pd.DataFrame) -> list[str]:
    """The columns of REPEAT that a table has."""
    return [key for key in REPEAT if key in runs]


def distinct_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """The first run of each seed (and fold): others differ in workers or hardware alone."""
    return runs.drop_duplicates(repeat_of(runs))


def by_repeat(runs: pd.DataFrame) -> pd.DataFrame:
    """`distinct_seeds`, with REPEAT as their index."""
    return distinct_seeds(runs).set_index(repeat_of(runs))


def paired_difference(runs: pd.DataFrame, reference: pd.DataFrame, measure: str) -> dict[str, Any]:
    """A measure of `runs` less that of the run of the same seed (and fold) in `reference`.

    Returns:
        `difference_n`: how many both have; `difference_mean`; `difference_ci95`: half of its 95 % interval
        (`half_width`), NaN for fewer than two; `difference_freedom` of that t; `difference_interval`: what
        it is over, SEEDS_ALONE.
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


def interval_words(rows: pd.DataFrame) -> str:
    """The kinds of intervals that the differences in some rows have, with their degrees of freedom."""
    known = rows[rows["difference_interval"].fillna("").astype(bool)]
    parts = []
    for interval, alike in known.groupby("difference_interval", sort=True):
        low, high = (
            f"{end:.3g}" for end in (alike["difference_freedom"].min(), alike["difference_freedom"].max())
        )
        parts.append(f"{interval}, {low if low == high else f'{low} to {high}'} degrees of freedom")
    return " / ".join(parts) or "none: n = 1"


def paired_ratios(over: pd.DataFrame, under: pd.DataFrame, measure: str) -> pd.Series:
    """A measure of `over` divided by that of the same seed (and fold) in `under`, of those that both have."""
    ours, theirs = (by_repeat(some)[measure].astype(float) for some in (over, under))
    return (ours / theirs).dropna()


def paired_ratio(over: pd.DataFrame, under: pd.DataFrame, measure: str) -> dict[str, float]:
    """`speedup`: the mean of `paired_ratios`, with `speedup_min` and `speedup_max`.

    All NaN where no speed-up may be said of these runs (`reporting_rules.may_say_speedup`).
    """
    if may_say_speedup(over, under):
        return dict.fromkeys(("speedup", "speedup_min", "speedup_max"), NAN)
    ratios = paired_ratios(over, under, measure)
    return {"speedup": ratios.mean(), "speedup_min": ratios.min(), "speedup_max": ratios.max()}
