"""Whether trainings were long enough to compare what was learned, as their rows say.

A run that has learned little has little to lose when scans, bits or repeats are left out: that accuracies are
alike then says nothing.
"""

from __future__ import annotations

import math
from statistics import fmean

import pandas as pd

from pcr_exp.analysis.frame import setting_keys
from pcr_exp.analysis.runs import evaluations_at
from pcr_exp.analysis.tables import percent
from pcr_exp.training.task import headline_called

LOSS_SHARE = 0.5
"""Of the loss that guessing has: trainings that end above it have not learned half of what there was."""
DISTANCE = 0.02
"""A training that ends further below its target has not come to where comparing was meant to be."""


def too_short(runs: pd.DataFrame) -> str:
    """Why the accuracies of some trainings compare nothing; empty if they do, or if there are none.

    Even the setting that learned most, with the highest mean score over its runs, must have a training loss
    of at most LOSS_SHARE of that of guessing, log(classes), and a score that misses its target by no more
    than DISTANCE.

    Args:
        runs: As `run_frame` makes it.
    """
    if runs.empty:
        return ""
    settings = [alike for _, alike in runs.groupby(setting_keys(runs, less=("seed",)))]
    score, negative_loss, first = max(map(_learned, settings), key=lambda found: found[:2])
    loss = -negative_loss
    guessed = math.log(first["num_classes"]) if first["num_classes"] else math.inf
    if loss > LOSS_SHARE * guessed:
        return (
            "these trainings were too short to compare accuracies: the best end at a training loss of "
            f"{loss:.2f}, where guessing has {guessed:.2f}"
        )
    if score < first["target_score"] - DISTANCE:
        words = headline_called(first["headline"]).words
        return (
            "these trainings were too short to compare accuracies: the best end at "
            f"{percent(score)} {words}, where the target is {percent(first['target_score'])}"
        )
    return ""


def _learned(runs: pd.DataFrame) -> tuple[float, float, pd.Series]:
    """Mean score and, the less the better, minus the training loss of some runs at their ends."""
    last = [evaluations_at("full", rows)[-1] for rows in runs["rows"]]
    score, loss = (fmean(row[key] for row in last) for key in ("val_score", "train_loss"))
    return score, -loss, runs.iloc[0]
