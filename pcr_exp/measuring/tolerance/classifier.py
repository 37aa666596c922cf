"""A linear model that is trained at one scan group and tested at every group, on other images.

Targets are those of a task (`Task.target`). Class indexes [N] give a multinomial logistic regression, 0 or 1
for each of several classes [N, K] one logistic regression per class, and real numbers [N] a ridge regression.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.errors import ConfigError, DatasetError

MAX_ITERATIONS = 500
TOLERANCE = 1e-3
"""Gradient size at which a fit ends."""
_NUM_TENTHS = 10
_FLOOR = 1e-6
"""Lower bound on the right class's probability, which is 0 if the class was absent in training."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for every image by classifiers trained without any image of its cluster."""

    classes: NDArray[np.int64]
    """[train groups, test groups, images]; zeros if targets are not class indexes."""
    outputs: NDArray[np.float32]
    """[train groups, test groups, images]: log-odds of the second of two classes, NaN for more than two, or
    the predicted number. With several classes per image [..., K]: log-odds of each class."""
    strengths: NDArray[np.float64]
    """[folds, train groups]: inverse regularisation strength chosen by the inner folds."""
    margins: NDArray[np.float32] | None = None
    """[DEPLOYMENTS, train groups, images]: log-odds of the right class over the best other one; below 0 if
    another was predicted. None for multilabel and number targets, or if saved before margins existed."""


Targets: TypeAlias = NDArray[Any]
"""int64 [N], float32 [N, K] of 0 and 1, or float32 [N] of real numbers."""


def strata_of(targets: Targets) -> NDArray[np.int64]:
    """Return the strata to spread over folds, int64 [N]: classes, sets of classes, or deciles of numbers."""
    if targets.ndim == 2:
        sets: NDArray[np.int64] = np.unique(targets, axis=0, return_inverse=True)[1].reshape(-1)
        return sets
    if targets.dtype.kind != "f":
        return targets
    return np.argsort(np.argsort(targets, kind="stable")) * _NUM_TENTHS // len(targets)


def divide(
    labels: NDArray[np.int64], clusters: NDArray[np.int64], num_folds: int, seed: int
) -> NDArray[np.int64]:
    """Return each image's fold, int64 [N]. No cluster is split; classes are spread as evenly as possible.

    Raises:
        ConfigError: scikit-learn is not installed.
        DatasetError: there are fewer clusters than folds.
    """
    if len(np.unique(clusters)) < num_folds:
        raise DatasetError(
            f"{len(labels)} images in {len(np.unique(clusters))} groups: wanted at least {num_folds} groups, "
            f"one for each fold. Add images, or ask for fewer folds (num_folds, num_inner_folds)."
        )
    model_selection = _sklearn("model_selection")
    splitter = model_selection.StratifiedGroupKFold(num_folds, shuffle=True, random_state=seed)
    folds = np.empty(len(labels), dtype=np.int64)
    with warnings.catch_warnings():  # about classes with fewer images than folds
        warnings.simplefilter("ignore", UserWarning)
        for fold, (_, held_out) in enumerate(splitter.split(labels, labels, clusters)):
            folds[held_out] = fold
    return folds


def cross_validate(
    features: NDArray[np.float32],
    labels: Targets,
    clusters: NDArray[np.int64],
    *,
    balanced: bool,
    strengths: Sequence[float],
    num_folds: int,
    num_inner_folds: int,
    seed: int,
    num_threads: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Predictions:
    """Train on each group and test on every group, fold by fold.

    The model is linear (scikit-learn). Its features are scaled to mean 0 and deviation 1 over the training
    images. Its regularisation is the one of `strengths` with the lowest loss in the inner folds of the
    training images, at the training group.

    Args:
        features: float32 [groups, N, D].
        labels: `Targets`; class indexes start at 0.
        clusters: [N]: images with the same number are never split between training and test.
        balanced: Weight classes equally, however many images they have.
        strengths: Inverse regularisation strengths (`C`).
        num_folds: Outer folds.
        num_inner_folds: Inner folds.
        seed: Seed of the outer and inner folds.
        num_threads: Fits at a time.
        progress: Called with the number of finished classifiers and their total.

    Raises:
        ConfigError: scikit-learn is not installed.
        DatasetError: there are too few clusters.
    """
    num_groups, num_images, _ = features.shape
    strata = strata_of(labels)
    folds = divide(strata, clusters, num_folds, seed)
    inner = {
        fold: divide(strata[folds != fold], clusters[folds != fold], num_inner_folds, seed)
        for fold in range(num_folds)
    }
    is_number = labels.dtype.kind == "f"
    classes = np.zeros((num_groups, num_groups, num_images), dtype=np.int64)
    outputs = np.full((*classes.shape[:2], *labels.shape), np.nan, dtype=np.float32)
    margins = np.empty((len(DEPLOYMENTS), num_groups, num_images), dtype=np.float32)
    chosen = np.empty((num_folds, num_groups))
    jobs = list(product(range(num_folds), range(num_groups)))

    def work(job: tuple[int, int]) -> None:
        fold, group = job
        learns, held_out = folds != fold, np.flatnonzero(folds == fold)
        scale = Scale(features[group, learns])
        inputs, wanted = scale(features[group, learns]), labels[learns]
        weights = image_weights(wanted) if balanced else np.ones(len(wanted))
        chosen[job] = _choose(inputs, wanted, weights, inner[fold], strengths)
        (model,) = fitted(inputs, wanted, weights, [chosen[job]])
        for other in range(num_groups):
            said = model.decision_function(scale(features[other, held_out]))
            if is_number:
                outputs[group, other, held_out] = said
                continue
            if said.ndim == 1:  # two classes: log-odds of the second
                classes[group, other, held_out] = model.classes_[(said > 0).astype(int)]
                outputs[group, other, held_out] = said
            else:
                classes[group, other, held_out] = model.classes_[said.argmax(1)]
            for deployment, used_at in enumerate((num_groups - 1, group)):
                if other == used_at:
                    margins[deployment, group, held_out] = _margins(said, model.classes_, labels[held_out])

    with _sklearn_threads(), ThreadPoolExecutor(num_threads) as pool:
        for done, _ in enumerate(pool.map(work, jobs)):
            progress(done + 1, len(jobs))
    return Predictions(classes, outputs, chosen, None if is_number else margins)


def _margins(
    said: NDArray[np.float64], classes: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return log-odds of the right class over the best other one [N]; -inf if training lacked it."""
    if said.ndim == 1:  # two classes
        said = np.stack([np.zeros_like(said), said], axis=1)
    is_right = classes == labels[:, None]
    right = np.where(is_right, said, -np.inf).max(1)
    other = np.where(is_right, -np.inf, said).max(1)
    return np.where(np.isinf(right), -np.inf, right - other)


def image_weights(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return weights [N] with mean 1 and the same sum for every class that occurs."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return (len(labels) / (len(counts) * counts))[places]


class Scale:
    """Standardisation of features by the mean and deviation of the training features."""

    def __init__(self, learned_from: NDArray[np.float32]) -> None:
        self._mean = learned_from.mean(0)
        self._deviation = learned_from.std(0) + 1e-6

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return (features - self._mean) / self._deviation


def _choose(
    inputs: NDArray[np.float32],
    labels: Targets,
    weights: NDArray[np.float64],
    folds: NDArray[np.int64],
    strengths: Sequence[float],
) -> float:
    """Return the inverse strength of least loss in the folds; ties go to the strongest regularisation."""
    ordered = sorted(strengths)
    losses = np.zeros(len(ordered))
    for fold in range(folds.max() + 1):
        learns, held_out = folds != fold, folds == fold
        for i, model in enumerate(fitted(inputs[learns], labels[learns], weights[learns], ordered)):
            losses[i] += weights[held_out] @ losses_of(model, inputs[held_out], labels[held_out])
    return ordered[int(losses.argmin())]


def losses_of(model: Any, inputs: NDArray[np.float32], labels: Targets) -> NDArray[np.float64]:
    """Return each image's loss [N]: cross-entropy, its mean over the classes, or the squared error."""
    if isinstance(model, _Several):
        each = [losses_of(one, inputs, labels[:, i]) for i, one in enumerate(model.models)]
        return np.mean(each, axis=0)
    if isinstance(model, _Number):
        squared: NDArray[np.float64] = (model.decision_function(inputs) - labels) ** 2
        return squared
    shares = model.predict_proba(inputs)
    right = (model.classes_[None] == labels[:, None]) * shares
    return -np.log(np.maximum(right.sum(1), _FLOOR))


def fitted(
    inputs: NDArray[np.float32], labels: Targets, weights: NDArray[np.float64], strengths: Sequence[float]
) -> Any:
    """Yield a fitted model for each of the increasing inverse strengths; each fit starts from the last.

    The models may be one object: use each before requesting the next.
    """
    if labels.ndim == 2:
        paths = [fitted(inputs, of_class, weights, strengths) for of_class in labels.astype(np.int64).T]
        yield from map(_Several, zip(*paths, strict=True))
        return
    if labels.dtype.kind == "f":
        for strength in strengths:
            yield _Number(_sklearn("linear_model").Ridge(1 / strength).fit(inputs, labels))
        return
    if len(np.unique(labels)) == 1:
        yield from [_Constant(labels[:1])] * len(strengths)
        return
    model = _sklearn("linear_model").LogisticRegression(
        max_iter=MAX_ITERATIONS, tol=TOLERANCE, warm_start=True
    )
    for strength in strengths:
        yield model.set_params(C=strength).fit(inputs, labels, sample_weight=weights)


@dataclass(frozen=True, slots=True)
class _Several:
    """One binary classifier per class."""

    models: Sequence[Any]

    def decision_function(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return log-odds [N, K]; for a class that all or no training images had, all are equal."""
        return np.stack([model.decision_function(inputs).reshape(len(inputs)) for model in self.models], 1)


@dataclass(frozen=True, slots=True)
class _Number:
    """A fitted ridge regression."""

    model: Any

    def decision_function(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(self.model.predict(inputs), dtype=np.float64)


class _Constant:
    """A classifier trained on images of a single class."""

    def __init__(self, only: NDArray[np.int64]) -> None:
        self.classes_ = only

    def predict_proba(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.ones((len(inputs), 1))

    def decision_function(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.zeros((len(inputs), 1))


def _sklearn(module: str) -> Any:
    try:
        return __import__(f"sklearn.{module}", fromlist=[module])
    except ImportError as error:
        raise ConfigError(
            f"scikit-learn cannot be imported ({error}). Install it: pip install 'pcr-exp[pretrained]'."
        ) from error


def _sklearn_threads() -> Any:
    """Return a context that limits each fit to one thread, as several fits share the cores."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
