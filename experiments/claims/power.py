"""What an interval could have found."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import optimize, stats

from pcr_exp.analysis.intervals import half_of

POWER = 0.80


def found_at(half_width: float, freedom: float) -> float:
    """The true difference that a 95 % interval of this half width would have shown with 80 % power.

    NaN where there is no interval.
    """
    if not freedom > 0:
        return float("nan")
    return half_width * _effect(round(float(freedom), 2)) / float(half_of(1.0, freedom))


@cache
def _effect(freedom: float) -> float:
    """The difference in standard errors that a two-sided t test of level 5 % finds with 80 % power."""
    quantiles = (np.arange(2000) + 0.5) / 2000
    known = np.isinf(freedom)
    errors = np.ones(1) if known else np.sqrt(stats.chi2.ppf(quantiles, freedom) / freedom)  # over the true
    critical = half_of(1.0, freedom) * errors

    def lacking(effect: float) -> float:
        power = stats.norm.sf(critical - effect) + stats.norm.cdf(-critical - effect)
        return float(power.mean()) - POWER

    return float(optimize.brentq(lacking, 0.0, 10 * float(half_of(1.0, freedom))))
