"""From predictions to an answer: the loss at each scan group, its interval, and which group is enough.

Intervals are percentiles of a bootstrap over clusters of images (Efron 1979). All pairs of groups share the
same resamples, so differences are paired image by image. Intervals cover the choice of images, not the draw
of folds or the choice of network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pcr_exp.config.measuring import DEPLOYMENTS, NUM_FOLDS, NUM_INNER_FOLDS, NUM_RESAMPLES, STRENGTHS
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.tolerance.classifier import Predictions, Targets, cross_validate
from pcr_exp.training.task import primary_metric_named
from pcr_exp.training.values import average_precision

CONFIDENCE = 0.95
EQUAL_CLASSES = "balanced_accuracy"
"""The primary metric with equally weighted classes; the classifier is then trained with equal weights too."""
TOLERATED, REFUSED, UNDECIDED = "tolerated", "loses more", "cannot be told"
MATRIX_COLUMNS = ["train_group", "test_group", "n", "headline", "score", "score_low", "score_high"]
MATRIX_COLUMNS += ["loss", "loss_low", "loss_high"]

Floats = NDArray[np.float64]


def bootstrap_weights(clusters: NDArray[np.int64], num_resamples: int, seed: int) -> Floats:
    """Return how often each image occurs in each resample, float64 [num_resamples, N].

    A resample draws clusters with replacement, as many as exist, each with all of its images.
    """
    _, places = np.unique(clusters, return_inverse=True)
    num_clusters = int(places.max()) + 1
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(num_clusters, np.full(num_clusters, 1 / num_clusters), size=num_resamples)
    return counts[:, places].astype(np.float64)


def image_weights(clusters: NDArray[np.int64], num_resamples: int, seed: int) -> Floats:
    """Return float64 [1 + num_resamples, N]: a row of ones, then `bootstrap_weights`."""
    return np.vstack([np.ones(len(clusters)), bootstrap_weights(clusters, num_resamples, seed)])


def score(
    headline: str, classes: NDArray[np.int64], outputs: NDArray[np.float32], labels: Targets, weights: Floats
) -> Floats:
    """Return a task's primary metric for each row of image weights, float64 [R].

    Args:
        headline: Name of the primary metric (`pcr_exp.training.task`).
        classes: Predicted classes [N].
        outputs: As in `Predictions`, [N] or [N, K].
        labels: [N] or [N, K].
        weights: [R, N], such as counts in resamples.

    Raises:
        ConfigError: this metric cannot be computed from predictions of a linear model.
    """
    if headline not in _SCORES:
        raise ConfigError(
            f"task: its primary metric is {headline!r}; wanted one of {', '.join(_SCORES)}, the metrics of "
            "the tasks classification, balanced, auc, multilabel and regression."
        )
    return _SCORES[headline](classes, outputs, labels, weights)


def _top1(classes: NDArray[np.int64], _: Any, labels: NDArray[np.int64], weights: Floats) -> Floats:
    return weights @ (classes == labels) / weights.sum(1)


def _balanced_accuracy(
    classes: NDArray[np.int64], _: Any, labels: NDArray[np.int64], weights: Floats
) -> Floats:
    # Mean recall over the classes that occur in a resample.
    right = classes == labels
    members = (labels[:, None] == np.unique(labels)).astype(np.float64)
    counts = weights @ members
    with np.errstate(invalid="ignore"):
        recalls = weights @ (members * right[:, None]) / counts
    return np.nanmean(recalls, axis=1)


def _auc(_: Any, log_odds: NDArray[np.float32], labels: NDArray[np.int64], weights: Floats) -> Floats:
    # Mann and Whitney 1947: the share of pairs in which the positive scores higher; ties count half.
    order = np.argsort(log_odds, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(log_odds[order]) > 0])  # of equal values
    positive, negative = (
        np.add.reduceat((weights * (labels == label))[:, order], starts, axis=1) for label in (1, 0)
    )
    below = np.cumsum(negative, axis=1) - negative / 2
    with np.errstate(invalid="ignore"):
        return (positive * below).sum(1) / (positive.sum(1) * negative.sum(1))


def _mean_ap(_: Any, outputs: NDArray[np.float32], there: Targets, weights: Floats) -> Floats:
    # Mean over the classes that occur in the resample.
    each = [average_precision(outputs[:, i], there[:, i] > 0, weights) for i in range(there.shape[1])]
    return np.nanmean(each, axis=0)


def _r2(_: Any, outputs: NDArray[np.float32], numbers: Targets, weights: Floats) -> Floats:
    numbers = numbers.astype(np.float64)
    mean = weights @ numbers / weights.sum(1)
    spread = weights @ numbers**2 - weights.sum(1) * mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, 1 - weights @ (outputs - numbers) ** 2 / spread, np.nan)


_SCORES: dict[str, Callable[..., Floats]] = {
    "top1": _top1,
    "balanced_accuracy": _balanced_accuracy,
    "auc": _auc,
    "mean_ap": _mean_ap,
    "r2": _r2,
}
"""Scoring functions by the name of a task's primary metric."""


def majority_share_of(targets: Targets) -> float | None:
    """Return `Task.majority_share_of`, computed from a task's targets."""
    if targets.ndim == 2:
        shares = targets.mean(axis=0)
        return float(shares[shares > 0].mean()) if shares.any() else None
    return None if targets.dtype.kind == "f" else float(np.bincount(targets).max() / len(targets))


def num_classes(targets: Targets) -> int:
    """Return the number of classes that occur; 1 for real numbers, like a network's outputs."""
    if targets.ndim == 2:
        return int(targets.any(axis=0).sum())
    return 1 if targets.dtype.kind == "f" else len(np.unique(targets))


def interval(resampled: Floats) -> tuple[float, float]:
    """Return the central 95 % of resampled values, leaving out NaN (resamples without a value)."""
    low, high = np.nanpercentile(resampled, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def loss_matrix(
    predictions: Predictions,
    labels: Targets,
    clusters: NDArray[np.int64],
    groups: Sequence[int],
    *,
    headline: str,
    num_resamples: int,
    seed: int,
) -> pd.DataFrame:
    """Return MATRIX_COLUMNS: for each pair of groups, the score and its loss (below 0: a gain).

    Both are shares with 95 % intervals. Losses are relative to training and testing at the last group.
    """
    weights = image_weights(clusters, num_resamples, seed)
    scores = {
        (train, test): score(headline, predictions.classes[i, j], predictions.outputs[i, j], labels, weights)
        for i, train in enumerate(groups)
        for j, test in enumerate(groups)
    }
    whole = scores[groups[-1], groups[-1]]
    rows = []
    for (train, test), found in scores.items():
        lost = whole - found
        of_score, of_loss = (float(found[0]), *interval(found[1:])), (float(lost[0]), *interval(lost[1:]))
        rows.append([train, test, len(labels), headline, *of_score, *of_loss])
    return pd.DataFrame(rows, columns=MATRIX_COLUMNS)


def loss_bounds(
    features: NDArray[np.float32], labels: Targets, groups: Sequence[int], headline: str, *, seed: int
) -> dict[str, dict[int, float]]:
    """Return the upper end of the loss's interval by deployment and group, with default settings.

    If the interval of the score at all groups reaches down to chance level, losses cannot be measured. Every
    bound is then 1, the whole score.

    Args:
        features: float32 [groups, N, D].
        labels: The task's targets, [N] or [N, K].
        groups: Scan groups in increasing order.
        headline: Name of the task's primary metric.
        seed: Seed of folds and resamples.

    Raises:
        ConfigError: scikit-learn is not installed, or the metric is not known here.
        DatasetError: there are too few images.
    """
    clusters = np.arange(len(labels))
    predictions = cross_validate(
        features,
        labels,
        clusters,
        balanced=headline == EQUAL_CLASSES,
        strengths=STRENGTHS,
        num_folds=NUM_FOLDS,
        num_inner_folds=NUM_INNER_FOLDS,
        seed=seed,
    )
    matrix = loss_matrix(
        predictions, labels, clusters, groups, headline=headline, num_resamples=NUM_RESAMPLES, seed=seed
    )
    whole = matrix[(matrix["train_group"] == groups[-1]) & (matrix["test_group"] == groups[-1])].iloc[0]
    guessed = primary_metric_named(headline).guessed(majority_share_of(labels), num_classes(labels)) or 0.0
    if float(whole["score_low"]) <= guessed:
        return {deployment: dict.fromkeys(groups, 1.0) for deployment in DEPLOYMENTS}
    rows = {deployment: deployed(matrix, deployment, margin=1.0) for deployment in DEPLOYMENTS}
    return {
        deployment: dict(zip(found["train_group"].astype(int), found["loss_high"].astype(float), strict=True))
        for deployment, found in rows.items()
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """Groups that are enough for one deployment of the model."""

    deployment: str
    """One of DEPLOYMENTS."""
    tolerated: int
    """Smallest group with the upper end of its loss's interval below the margin. The highest group loses
    nothing, by definition."""
    undecided: list[int]
    """Smaller groups for which there are too few images to decide."""
    too_few: bool
    """Whether groups are undecided, only the highest is tolerated, and the upper half of every interval is
    wider than the margin, so that no group could be."""
    enough_images: int
    """Approximate number of images that would narrow the narrowest such half to the margin."""


def verdict(loss_low: float, loss_high: float, margin: float) -> str:
    """Return TOLERATED, REFUSED or UNDECIDED for a loss's interval and a margin."""
    if loss_high < margin:
        return TOLERATED
    return REFUSED if loss_low >= margin else UNDECIDED


def deployed(matrix: pd.DataFrame, deployment: str, margin: float) -> pd.DataFrame:
    """Return a deployment's rows of the matrix with their `verdict`, sorted by the group trained on."""
    highest = matrix["train_group"].max()
    used_at = highest if deployment == "full" else matrix["train_group"]
    rows = matrix[matrix["test_group"] == used_at].sort_values("train_group").reset_index(drop=True)
    verdicts = [
        verdict(low, high, margin) for low, high in zip(rows["loss_low"], rows["loss_high"], strict=True)
    ]
    return rows.assign(deployment=deployment, verdict=verdicts)


def answer(matrix: pd.DataFrame, deployment: str, margin: float) -> Answer:
    """Return the smallest group that loses less than `margin`, and the undecided groups."""
    rows = deployed(matrix, deployment, margin)
    tolerated = int(rows.loc[rows["verdict"] == TOLERATED, "train_group"].min())
    smaller = rows[rows["train_group"] < tolerated]
    undecided = [int(group) for group in smaller.loc[smaller["verdict"] == UNDECIDED, "train_group"]]
    below = rows[rows["train_group"] < rows["train_group"].max()]
    reach = (below["loss_high"] - below["loss"]).to_numpy(dtype=float)
    narrowest = float(reach.min())
    return Answer(
        deployment,
        tolerated,
        undecided,
        too_few=bool(undecided) and narrowest > margin and tolerated == rows["train_group"].max(),
        enough_images=int(np.ceil(float(rows["n"].iloc[0]) * (narrowest / margin) ** 2)),
    )
