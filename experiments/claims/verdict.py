"""The rule that derives verdicts from numbers, and the check for trainings that are too short.

verdicts.md explains it for readers. A run that has learned little has little to lose when scans, bits or
repeats are left out. Equal accuracies of such runs prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from pcr_exp.analysis.frame import setting_keys
from pcr_exp.analysis.runs import evaluations_at
from pcr_exp.analysis.tables import percent, three_figures
from pcr_exp.training.task import primary_metric_named

HOLDS = "holds"
IN_PART = "in part"
FAILS = "does not"
RECALLED = "published number recalled"
"""Would be FAILS, if it were certain that this was published."""
UNDECIDED = "cannot be told"
NOT_YET = "not tested yet"
NOT_HERE = "not testable here"
VERDICTS = (HOLDS, IN_PART, FAILS, RECALLED, UNDECIDED, NOT_YET, NOT_HERE)
EQUAL, NEAR = 0.10, 0.25
"""Largest relative differences of numbers that count as the same, and as the same in part."""


@dataclass(frozen=True, slots=True)
class Range:
    """The closed interval from `low` to `high`."""

    low: float = -math.inf
    high: float = math.inf

    def holds_all_of(self, low: float, high: float) -> bool:
        """Return whether it contains all numbers from `low` to `high`."""
        return self.low <= low and high <= self.high

    def holds_none_of(self, low: float, high: float) -> bool:
        """Return whether it contains no number from `low` to `high`."""
        return high < self.low or low > self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {three_figures(self.low)}"
        if math.isinf(self.low):
            return f"at most {three_figures(self.high)}"
        return f"{three_figures(self.low)} to {three_figures(self.high)}"


def at_least(low: float) -> Range:
    """Return the range from `low` upwards."""
    return Range(low=low)


def at_most(high: float) -> Range:
    """Return the range up to `high`."""
    return Range(high=high)


def around(number: float, share: float) -> Range:
    """Return the range of numbers that differ from a positive one by at most a share of it."""
    return Range(number * (1 - share), number * (1 + share))


def half_the_gain(ratio: float) -> Range:
    """Return the range in which a published ratio holds in part: at least half of its gain over 1."""
    return at_least(1 + (ratio - 1) / 2)


def verdict(low: float, high: float, holds: Range, partly: Range | None = None) -> str:
    """Return the verdict on one number.

    Args:
        low: Lower end of its interval; NaN if it has none.
        high: Upper end.
        holds: Where the claim holds.
        partly: Where it holds in part, which includes `holds`; None: nowhere else.
    """
    if math.isnan(low) or math.isnan(high):
        return UNDECIDED
    if holds.holds_all_of(low, high):
        return HOLDS
    if partly is not None and partly.holds_all_of(low, high):
        return IN_PART
    return FAILS if (partly or holds).holds_none_of(low, high) else UNDECIDED


def verdict_over_cases(verdicts: Collection[str]) -> str:
    """Return the verdict on a claim, from the verdicts on its cases."""
    found = list(verdicts)
    if set(found) == {HOLDS}:
        return HOLDS
    if 2 * found.count(FAILS) >= len(found):
        return FAILS
    at_least_in_part = found.count(HOLDS) + found.count(IN_PART)
    return IN_PART if 2 * at_least_in_part > len(found) else UNDECIDED


def verdict_of_stand_in(found: str) -> str:
    """Return the verdict if our experiment only stands in for the paper's: it neither proves nor refutes."""
    return {HOLDS: IN_PART, FAILS: UNDECIDED}.get(found, found)


LOSS_SHARE = 0.5
"""Share of the loss at chance level. Trainings that end above it have not learned half of what is there."""
DISTANCE = 0.02
"""Maximum shortfall from the target. Trainings that end further below it are too short to compare."""


def too_short(runs: pd.DataFrame, metric: str | None = None) -> str:
    """Return why these trainings are too short to compare accuracies; empty if they are not or none is given.

    Only the setting with the highest mean score over its runs is checked. Its training loss must be at most
    LOSS_SHARE of the loss at chance level, log(classes). Its score may be at most DISTANCE below its target.

    Args:
        runs: From `run_frame`.
        metric: The score, if it is not the primary metric; its target is then the dataset's.
    """
    if runs.empty:
        return ""
    own = metric is None or metric == runs["headline"].iloc[0]
    key = "val_score" if own else f"val_{metric}"
    settings = [alike for _, alike in runs.groupby(setting_keys(runs, less=("seed",)))]
    learned = (_learned(of_setting, key) for of_setting in settings)
    score, negative_loss, first = max(learned, key=lambda found: found[:2])
    target = first["target_score"] if own else first["config"]["dataset"]["targets"][metric]
    loss = -negative_loss
    guessed = math.log(first["num_classes"]) if first["num_classes"] else math.inf
    if loss > LOSS_SHARE * guessed:
        return (
            "these trainings were too short to compare accuracies: the best end at a training loss of "
            f"{loss:.2f}, where guessing has {guessed:.2f}"
        )
    if score < target - DISTANCE:
        words = primary_metric_named(metric or first["headline"]).words
        return (
            "these trainings were too short to compare accuracies: the best end at "
            f"{percent(score)} {words}, where the target is {percent(target)}"
        )
    return ""


def _learned(runs: pd.DataFrame, key: str) -> tuple[float, float, pd.Series]:
    """Return some runs' mean final score, their negated mean final training loss, and the first run."""
    last = [evaluations_at("full", rows)[-1] for rows in runs["rows"]]
    score, loss = (fmean(row[key] for row in last) for key in (key, "train_loss"))
    return score, -loss, runs.iloc[0]
