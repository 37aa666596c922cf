"""Differences to the baseline over seeds and images, for runs that saved predictions of every image.

If a run saved none, or runs were evaluated on different images, `statistics.paired_difference` gives the
interval and labels it as over seeds alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pcr_exp.analysis.intervals import (
    INFLUENCES,
    ImageVariance,
    differences,
    of_folds,
    of_shared_images,
    strata_of,
)
from pcr_exp.analysis.statistics import by_repeat, paired_difference
from pcr_exp.runs.predictions import ImageScores

SEEDS_AND_IMAGES = "t over seeds and images"
FOLDS_AND_IMAGES = "t over folds and images"
INTERVALS = (SEEDS_AND_IMAGES, FOLDS_AND_IMAGES)

Influence = tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[Any]]
"""One evaluation, sorted by image hash: hashes, each image's influence on the score, strata."""


def with_intervals(
    runs: pd.DataFrame, reference: pd.DataFrame, measure: str, tested_at: str = "full"
) -> dict[Any, dict[str, Any]]:
    """Return the columns `statistics.DIFFERENCE` of each scan level's runs against the reference.

    Levels that have all seeds (or folds) of the reference share one variance over runs, which is pooled. A
    level whose runs have the reference's full-fidelity loss on every image, such as a group of all scans, is
    the same training repeated. Its differences are zero, and pooling them would narrow other intervals.

    Args:
        runs: Rows with `scan`, `run_id`, `headline`, `predictions` (None if a run saved none), the measure,
            and REPEAT.
        reference: The same columns for the baseline, tested in full.
        measure: Column with the score of the last evaluation.
        tested_at: The eval group of that evaluation.
    """
    levels = dict(iter(runs.groupby("scan", sort=True)))
    found = {name: paired_difference(rows, reference, measure) for name, rows in levels.items()}
    repeats = by_repeat(reference)
    whole = {name: _of_repeats(rows, repeats) for name, rows in levels.items()}
    pooled = {}
    for name, rows in whole.items():
        if rows is None:
            continue
        if _is_same_training(rows, repeats):
            found[name]["difference_interval"] = ""  # against itself
        else:
            pooled[name] = rows
    if len(repeats) < 2 or not pooled:
        return found
    images = _images([(repeats, "full"), *((rows, tested_at) for rows in pooled.values())])
    if images is None:
        return found
    scores = np.array([rows[measure].to_numpy(float) for rows in (repeats, *pooled.values())])
    joined = differences(scores, images[0])
    for place, name in enumerate(pooled):
        found[name] |= {
            "difference_ci95": float(joined.half_width[place]),
            "difference_freedom": float(joined.freedom[place]),
            "difference_interval": images[1],
        }
    return found


def _of_repeats(rows: pd.DataFrame, repeats: pd.DataFrame) -> pd.DataFrame | None:
    """Return a level's rows in the order of the reference's seeds, or None if a seed is missing."""
    own = by_repeat(rows)
    return own.loc[repeats.index] if repeats.index.isin(own.index).all() else None


def _is_same_training(rows: pd.DataFrame, repeats: pd.DataFrame) -> bool:
    if rows["run_id"].equals(repeats["run_id"]):
        return True
    losses = [[_losses(run) for run in some.to_dict("records")] for some in (rows, repeats)]
    return all(
        own is not None and other is not None and np.array_equal(own, other)
        for own, other in zip(*losses, strict=True)
    )


def _losses(run: Mapping[Any, Any]) -> NDArray[Any] | None:
    """Return image hashes with their full-fidelity losses, sorted; None if the run saved no predictions."""
    last = _last_evaluation(run, "full")
    return None if last is None else np.sort(np.rec.fromarrays([run["predictions"].image, last.loss]))


def _images(levels: Sequence[tuple[pd.DataFrame, str]]) -> tuple[ImageVariance, str] | None:
    """Return the variance over images and the interval's name; None if images are missing or unmatched."""
    found: list[list[Influence]] = []
    for rows, tested_at in levels:
        of_level = [_influence(run, tested_at) for run in rows.to_dict("records")]
        known = [one for one in of_level if one is not None]
        if len(known) < len(of_level):
            return None
        found.append(known)
    by_run = list(zip(*found, strict=True))
    if not all(np.array_equal(one[0][0], other[0]) for one in by_run for other in one):
        return None  # levels of one seed were evaluated on different images
    first = by_run[0][0][0]
    if all(np.array_equal(first, run[0][0]) for run in by_run):
        influence = np.array([[one[1] for one in level] for level in found])
        return of_shared_images(influence, by_run[0][0][2]), SEEDS_AND_IMAGES
    joined = np.concatenate([run[0][0] for run in by_run])
    if len(np.unique(joined)) < len(joined):
        return None  # images are neither shared by all runs nor disjoint
    folds = [(np.array([one[1] for one in run]), run[0][2]) for run in by_run]
    return of_folds(folds), FOLDS_AND_IMAGES


def _influence(run: Mapping[Any, Any], eval_group: str) -> Influence | None:
    kept, last = run["predictions"], _last_evaluation(run, eval_group)
    if last is None or run["headline"] not in INFLUENCES:
        return None
    classes = two_classes(kept.label, last.loss) if last.probabilities is None else last.probabilities
    order = np.argsort(kept.image)
    influence = INFLUENCES[run["headline"]](kept.label, last.correct, classes)
    return kept.image[order], influence[order], strata_of(run["headline"], kept.label)[order]


def _last_evaluation(run: Mapping[Any, Any], eval_group: str) -> ImageScores | None:
    kept = run["predictions"]
    of_group = [one for one in kept.evaluations if one.eval_group == eval_group] if kept else []
    return max(of_group, key=lambda one: one.epoch, default=None)


def two_classes(labels: NDArray[Any], loss: NDArray[Any]) -> NDArray[np.float64]:
    """Return log odds of both classes, [N, 2], from a model's loss on the labels.

    The loss is -log(p) of the label's class, whose log odds are therefore -log(exp(loss) - 1).
    """
    with np.errstate(divide="ignore", over="ignore"):
        odds = -np.log(np.expm1(loss.astype(np.float64)))
    of_second = np.where(labels == 1, odds, -odds)
    return np.stack([-of_second, of_second], axis=1)
