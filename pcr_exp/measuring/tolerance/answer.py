"""From predictions to an answer: what each scan group loses, how sure that is, and which is enough.

Intervals are of a bootstrap over clusters of images (Efron 1979): percentiles of resamples, the same ones for
every pair of groups, so differences are paired image by image. They say what other images would change, not
what another draw of folds or another network would.
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
from pcr_exp.training.task import headline_called
from pcr_exp.training.values import average_precision

CONFIDENCE = 0.95
EQUAL_CLASSES = "balanced_accuracy"
"""The headline that counts classes alike: the classifier then learns from them alike, too."""
TOLERATED, REFUSED, UNDECIDED = "tolerated", "loses more", "cannot be told"
MATRIX_COLUMNS = ["train_group", "test_group", "n", "headline", "score", "score_low", "score_high"]
MATRIX_COLUMNS += ["loss", "loss_low", "loss_high"]

Floats = NDArray[np.float64]


def bootstrap_weights(clusters: NDArray[np.int64], num_resamples: int, seed: int) -> Floats:
    """How often each image is in each resample, float64 [num_resamples, N].

    A resample draws as many clusters as there are, with replacement, each with all of its images.
    """
    _, places = np.unique(clusters, return_inverse=True)
    num_clusters = int(places.max()) + 1
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(num_clusters, np.full(num_clusters, 1 / num_clusters), size=num_resamples)
    return counts[:, places].astype(np.float64)


def image_weights(clusters: NDArray[np.int64], num_resamples: int, seed: int) -> Floats:
    """Float64 [1 + num_resamples, N]: every image once, then `bootstrap_weights`."""
    return np.vstack([np.ones(len(clusters)), bootstrap_weights(clusters, num_resamples, seed)])


def score(
    headline: str, classes: NDArray[np.int64], outputs: NDArray[np.float32], labels: Targets, weights: Floats
) -> Floats:
    """A task's headline under weights of the images, float64 [R].

    Args:
        headline: Its name (`pcr_exp.training.task`).
        classes: Predictions [N].
        outputs: As in `Predictions`, [N] or [N, K].
        labels: [N] or [N, K].
        weights: [R, N], such as counts in resamples.

    Raises:
        ConfigError: this headline cannot be had from predictions of a linear model.
    """
    if headline not in _SCORES:
        raise ConfigError(
            f"task: its headline is {headline!r}; wanted one of {', '.join(_SCORES)}, as tasks "
            "classification, balanced, auc, multilabel and regression have."
        )
    return _SCORES[headline](classes, outputs, labels, weights)


def _top1(classes: NDArray[np.int64], _: Any, labels: NDArray[np.int64], weights: Floats) -> Floats:
    return weights @ (classes == labels) / weights.sum(1)


def _balanced_accuracy(
    classes: NDArray[np.int64], _: Any, labels: NDArray[np.int64], weights: Floats
) -> Floats:
    # Recall of each class, and the mean over the classes that a resample has.
    right = classes == labels
    members = (labels[:, None] == np.unique(labels)).astype(np.float64)
    counts = weights @ members
    with np.errstate(invalid="ignore"):
        recalls = weights @ (members * right[:, None]) / counts
    return np.nanmean(recalls, axis=1)


def _auc(_: Any, log_odds: NDArray[np.float32], labels: NDArray[np.int64], weights: Floats) -> Floats:
    # Mann and Whitney 1947: the share of pairs in which the positive is above; ties count half.
    order = np.argsort(log_odds, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(log_odds[order]) > 0])  # of equal values
    positive, negative = (
        np.add.reduceat((weights * (labels == label))[:, order], starts, axis=1) for label in (1, 0)
    )
    below = np.cumsum(negative, axis=1) - negative / 2
    with np.errstate(invalid="ignore"):
        return (positive * below).sum(1) / (positive.sum(1) * negative.sum(1))


def _mean_ap(_: Any, outputs: NDArray[np.float32], there: Targets, weights: Floats) -> Floats:
    # The mean over the classes that an image of the resample has.
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
"""By the name of a task's headline."""


def guessing_share(targets: Targets) -> float | None:
    """As `Task.guessing_share`, of a task's targets."""
    if targets.ndim == 2:
        shares = targets.mean(axis=0)
        return float(shares[shares > 0].mean()) if shares.any() else None
    return None if targets.dtype.kind == "f" else float(np.bincount(targets).max() / len(targets))


def num_classes(targets: Targets) -> int:
    """Classes that some image has; of numbers 1, as a network's outputs."""
    if targets.ndim == 2:
        return int(targets.any(axis=0).sum())
    return 1 if targets.dtype.kind == "f" else len(np.unique(targets))


def interval(resampled: Floats) -> tuple[float, float]:
    """The central 95 % of some resampled values; resamples that have none (NaN) are left out."""
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
    """MATRIX_COLUMNS: for each pair of groups, the score and what it loses to all scans in both places.

    `score` and `loss` are shares with 95 % intervals; a loss below 0 is a gain.
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
    """By deployment and group, the upper end of the interval of what is lost, with the usual settings.

    Where the features do not tell the classes apart at all groups, nothing can be lost and nothing is known:
    every bound is then 1, all.

    Args:
        features: float32 [groups, N, D].
        labels: The task's targets, [N] or [N, K].
        groups: Rising.
        headline: Of the task.
        seed: Of folds and resamples.

    Raises:
        ConfigError: scikit-learn is not installed, or the headline is not known here.
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
    guessed = headline_called(headline).guessed(guessing_share(labels), num_classes(labels)) or 0.0
    if float(whole["score_low"]) <= guessed:
        return {deployment: dict.fromkeys(groups, 1.0) for deployment in DEPLOYMENTS}
    rows = {deployment: deployed(matrix, deployment, margin=1.0) for deployment in DEPLOYMENTS}
    return {
        deployment: dict(zip(found["train_group"].astype(int), found["loss_high"].astype(float), strict=True))
        for deployment, found in rows.items()
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """Which groups will do, for one way of using the model."""

    deployment: str
    """One of DEPLOYMENTS."""
    tolerated: int
    """The smallest group whose loss is below the margin, by the upper end of its interval. The highest group
    loses nothing, by definition."""
    undecided: list[int]
    """Smaller ones, of which the images are too few to say it either way."""
    too_few: bool
    """Some are undecided, none will do, and every interval reaches further than the margin: none could."""
    enough_images: int
    """About as many would make the narrowest interval as wide as the margin."""


def verdict(loss_low: float, loss_high: float, margin: float) -> str:
    """The verdict of a loss's interval on a margin."""
    if loss_high < margin:
        return TOLERATED
    return REFUSED if loss_low >= margin else UNDECIDED


def deployed(matrix: pd.DataFrame, deployment: str, margin: float) -> pd.DataFrame:
    """The rows of a matrix in which a model is used so, by the group trained on, with their `verdict`."""
    highest = matrix["train_group"].max()
    used_at = highest if deployment == "full" else matrix["train_group"]
    rows = matrix[matrix["test_group"] == used_at].sort_values("train_group").reset_index(drop=True)
    verdicts = [
        verdict(low, high, margin) for low, high in zip(rows["loss_low"], rows["loss_high"], strict=True)
    ]
    return rows.assign(deployment=deployment, verdict=verdicts)


def answer(matrix: pd.DataFrame, deployment: str, margin: float) -> Answer:
    """The smallest group that loses less than `margin`, and what cannot be told."""
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
