"""Classifiers, scores, intervals and answers, each against an oracle that shares no code with them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tolerance_images import GROUPS, backbone, image_files, write_samples

from pcr_exp.errors import ConfigError, DatasetError
from pcr_exp.measuring.tolerance import answer as answer_module
from pcr_exp.measuring.tolerance import classifier
from pcr_exp.measuring.tolerance.answer import (
    MATRIX_COLUMNS,
    REFUSED,
    TOLERATED,
    UNDECIDED,
    answer,
    bootstrap_weights,
    interval,
    loss_bounds,
    loss_matrix,
    majority_share_of,
    num_classes,
    score,
    verdict,
)
from pcr_exp.measuring.tolerance.classifier import (
    Predictions,
    _choose,
    cross_validate,
    divide,
    image_weights,
    strata_of,
)
from pcr_exp.measuring.tolerance.features import extract_features

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not here: pip install 'pcr-exp[pretrained]'")
SETTINGS = {"strengths": [0.01, 0.1, 1.0], "num_folds": 3, "num_inner_folds": 2, "seed": 0}


def measured(folder: Path, kind: str, headline: str = "top1") -> pd.DataFrame:
    """Return the matrix of 60 images whose class only `kind` reveals."""
    samples = write_samples(folder, kind)
    found = extract_features(image_files(samples), backbone(), folder=None, num_threads=2)
    labels = np.array([sample.labels["class"] for sample in samples])
    clusters = np.arange(len(samples))
    said = cross_validate(found.values, labels, clusters, balanced=False, **SETTINGS)  # type: ignore[arg-type]
    return loss_matrix(said, labels, clusters, GROUPS, headline=headline, num_resamples=300, seed=0)


@pytest.mark.parametrize("headline", ["top1", "balanced_accuracy", "auc"])
@pytest.mark.parametrize(("kind", "enough"), [("fine", 5), ("colour", 1)])
def test_detail_needs_its_scan_and_colour_the_first_alone(
    tmp_path: Path, kind: str, enough: int, headline: str
) -> None:
    matrix = measured(tmp_path, kind, headline)
    for deployment in ("full", "same"):
        found = answer(matrix, deployment, margin=0.05)
        assert (found.tolerated, found.undecided) == (enough, [])
    whole = matrix[(matrix["train_group"] == 10) & (matrix["test_group"] == 10)].iloc[0]
    assert whole["score"] == 1 and (whole["loss"], whole["loss_low"], whole["loss_high"]) == (0, 0, 0)


def test_trained_on_all_scans_and_used_without_detail_is_in_the_matrix(tmp_path: Path) -> None:
    matrix = measured(tmp_path, "fine").set_index(["train_group", "test_group"])
    assert list(matrix.reset_index().columns) == MATRIX_COLUMNS and len(matrix) == len(GROUPS) ** 2
    assert matrix.loc[(10, 1), "score"] <= 0.7 and matrix.loc[(10, 5), "score"] == 1


def test_no_cluster_is_in_two_folds_and_classes_are_spread() -> None:
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 60, 300)
    labels = clusters % 3
    folds = divide(labels, clusters, 5, seed=1)
    assert set(folds) == set(range(5))
    assert all(len(set(folds[clusters == cluster])) == 1 for cluster in set(clusters))
    shares = np.array([[np.mean(labels[folds == fold] == label) for label in range(3)] for fold in range(5)])
    assert np.abs(shares - shares.mean(0)).max() < 0.12
    assert (divide(labels, clusters, 5, seed=2) != folds).any()


def test_images_of_one_cluster_do_not_give_each_other_away() -> None:
    """Features identify the cluster and labels are random, so only a leak could predict them."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(60), 5)
    labels = rng.integers(0, 2, 60)[clusters]
    features = rng.normal(size=(60, 80))[clusters][None].astype(np.float32)
    alone = np.arange(len(labels))
    settings = {**SETTINGS, "num_folds": 5}
    honest, leaking = (
        (cross_validate(features, labels, by, balanced=False, **settings).classes[0, 0] == labels).mean()  # type: ignore[arg-type]
        for by in (clusters, alone)
    )
    assert honest < 0.65 and leaking > 0.95


def test_predictions_are_those_of_scikit_learn_on_the_same_folds() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 150)
    features = (rng.normal(size=(1, 150, 6)) + labels[None, :, None] * 0.7).astype(np.float32)
    clusters = np.arange(150)
    found = cross_validate(
        features,
        labels,
        clusters,
        balanced=False,
        **{**SETTINGS, "strengths": [0.1]},  # type: ignore[arg-type]
    )
    oracle = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    folds = PredefinedSplit(divide(labels, clusters, 3, seed=0))
    wanted = cross_val_predict(oracle, features[0], labels, cv=folds)
    assert (found.classes[0, 0] == wanted).mean() > 0.98
    assert (found.strengths == 0.1).all() and np.isnan(found.outputs).all()


def test_balanced_learning_hears_rare_classes() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.1).astype(np.int64)
    features = (rng.normal(size=(1, 400, 3)) + labels[None, :, None]).astype(np.float32)
    recalls = [
        (cross_validate(features, labels, np.arange(400), balanced=balanced, **SETTINGS).classes[0, 0] == 1)[  # type: ignore[arg-type]
            labels == 1
        ].mean()
        for balanced in (False, True)
    ]
    assert recalls[1] > recalls[0] + 0.2
    weights = image_weights(np.array([0, 0, 0, 1]))
    assert weights.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2]) and weights.mean() == 1


@pytest.mark.parametrize("num_classes", [2, 3])
def test_margins_are_below_0_where_another_class_was_said(num_classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, 90)
    features = (rng.normal(size=(2, 90, 4)) + labels[None, :, None] * 0.7).astype(np.float32)
    found = cross_validate(features, labels, np.arange(90), balanced=False, **SETTINGS)  # type: ignore[arg-type]
    assert found.margins is not None
    for train in (0, 1):
        for margins, test in zip(found.margins[:, train], (1, train), strict=True):
            is_wrong = found.classes[train, test] != labels
            assert 0 < is_wrong.sum() < 90 and ((margins < 0) == is_wrong).all()
            if num_classes == 2:
                log_odds = found.outputs[train, test]
                assert margins.tolist() == pytest.approx(np.where(labels == 1, log_odds, -log_odds).tolist())


def test_a_class_of_one_image_is_wrong_and_no_error() -> None:
    labels = np.array([0] * 12 + [1] * 12 + [2])
    features = np.random.default_rng(0).normal(size=(1, 25, 3)).astype(np.float32)
    found = cross_validate(features, labels, np.arange(25), balanced=True, **SETTINGS)  # type: ignore[arg-type]
    assert found.classes[0, 0, 24] != 2
    assert found.margins is not None and np.isneginf(found.margins[0, 0, 24]), "it was never learned from"


def test_training_images_of_one_class_say_that_class() -> None:
    labels = np.array([0, 1, 1, 1, 1, 1])
    features = np.zeros((1, 6, 2), dtype=np.float32)
    found = cross_validate(features, labels, np.array([0, 1, 1, 2, 2, 2]), balanced=False, **SETTINGS)  # type: ignore[arg-type]
    assert found.classes[0, 0, 0] == 1, "the only image of its class was not learned from"


def test_too_few_groups_of_images_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"4 images in 2 groups: wanted at least 3 groups.*num_folds"):
        divide(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), 3, seed=0)


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    with pytest.raises(ConfigError, match=r"scikit-learn cannot be imported .* 'pcr-exp\[pretrained\]'"):
        divide(np.array([0, 1]), np.array([0, 1]), 2, seed=0)


def test_scores_under_weights_are_scikit_learns() -> None:
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score

    rng = np.random.default_rng(0)
    labels, weights = rng.integers(0, 2, 80), rng.integers(0, 4, (6, 80)).astype(np.float64)
    log_odds = (labels + rng.normal(size=80)).round(1).astype(np.float32)  # with ties
    classes = (log_odds > 0.4).astype(np.int64)
    oracles = {"top1": accuracy_score, "balanced_accuracy": balanced_accuracy_score}
    for name, oracle in oracles.items():
        wanted = [oracle(labels, classes, sample_weight=row) for row in weights]
        np.testing.assert_allclose(score(name, classes, log_odds, labels, weights), wanted)
    wanted = [roc_auc_score(labels, log_odds, sample_weight=row) for row in weights]
    np.testing.assert_allclose(score("auc", classes, log_odds, labels, weights), wanted)
    with pytest.raises(
        ConfigError, match=r"its primary metric is 'f1'; wanted one of top1, balanced_accuracy, auc"
    ):
        score("f1", classes, log_odds, labels, weights)


def test_scores_of_sets_and_numbers_under_weights_are_scikit_learns() -> None:
    from sklearn.metrics import average_precision_score, r2_score

    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, (6, 80)).astype(np.float64)
    there = (rng.random((80, 3)) < 0.4).astype(np.float32)
    outputs = (there + rng.normal(size=(80, 3))).round(1).astype(np.float32)
    nothing = np.zeros(80, dtype=np.int64)
    wanted = [average_precision_score(there, outputs, sample_weight=row) for row in weights]
    np.testing.assert_allclose(score("mean_ap", nothing, outputs, there, weights), wanted, rtol=1e-6)
    numbers, said = outputs[:, 0] + there[:, 1], outputs[:, 0]
    wanted = [r2_score(numbers, said, sample_weight=row) for row in weights]
    np.testing.assert_allclose(score("r2", nothing, said, numbers, weights), wanted, rtol=1e-5)
    assert np.isnan(score("r2", nothing, said, np.ones(80, np.float32), weights)).all()


def test_numbers_and_sets_are_predicted_as_scikit_learn_does_on_the_same_folds() -> None:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    features = rng.normal(size=(1, 150, 6)).astype(np.float32)
    numbers = (features[0] @ np.arange(6) / 6 + rng.normal(size=150) / 3).astype(np.float32)
    sets = np.stack([numbers > 0, features[0, :, 1] > 0, np.zeros(150)], axis=1).astype(np.float32)
    settings = {**SETTINGS, "strengths": [0.1]}
    for targets, model in ((numbers, Ridge(1 / 0.1)), (sets, LogisticRegression(C=0.1))):
        found = cross_validate(features, targets, np.arange(150), balanced=False, **settings)  # type: ignore[arg-type]
        assert found.outputs.shape == (1, 1, *targets.shape) and not found.classes.any()
        folds = PredefinedSplit(divide(strata_of(targets), np.arange(150), 3, seed=0))
        pipeline = make_pipeline(StandardScaler(), model)
        for i, column in enumerate(targets.reshape(150, -1).T[:2]):
            how = "predict" if targets is numbers else "decision_function"
            wanted = cross_val_predict(pipeline, features[0], column, cv=folds, method=how)
            np.testing.assert_allclose(found.outputs[0, 0].reshape(150, -1)[:, i], wanted, atol=0.02)
    assert (found.outputs[..., 2] == 0).all(), "a class that no image has says nothing"


def test_bounds_of_sets_and_numbers_are_all_where_nothing_was_learned() -> None:
    rng = np.random.default_rng(0)
    features = np.repeat(rng.normal(size=(1, 120, 4)), 2, axis=0).astype(np.float32)
    features[0] = rng.normal(size=(120, 4))  # the first group carries no information
    numbers = features[1, :, 0]
    sets = np.stack([numbers > 0, features[1, :, 1] > 0], axis=1).astype(np.float32)
    for headline, targets in (("r2", numbers), ("mean_ap", sets)):
        bounds = loss_bounds(features, targets, (1, 10), headline, seed=0)["same"]
        assert bounds[1] > 0.3 and bounds[10] == 0
        blind = loss_bounds(features[[0, 0]], targets, (1, 10), headline, seed=0)["same"]
        assert blind == {1: 1.0, 10: 1.0}


def test_what_guessing_leans_on() -> None:
    assert majority_share_of(np.array([0, 0, 1, 2])) == 0.5 and num_classes(np.array([0, 0, 2])) == 2
    sets = np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32)
    assert majority_share_of(sets) == 0.75 and num_classes(sets) == 2
    assert majority_share_of(sets * 0) is None and majority_share_of(sets[:, 0]) is None
    assert num_classes(sets[:, 0]) == 1


def test_recall_takes_no_room_for_classes_that_no_image_has() -> None:
    labels = np.array([2**31, 3, 3, 2**31])
    weights = np.array([[1.0, 1, 1, 1], [1, 0, 1, 0]])
    said = score("balanced_accuracy", np.array([2**31, 3, 0, 7]), np.full(4, np.nan), labels, weights)
    assert said.tolist() == [0.5, 0.5]


def test_an_interval_is_scipys_bootstrap() -> None:
    rng = np.random.default_rng(0)
    lost = rng.choice([-1.0, 0.0, 1.0], size=400, p=[0.05, 0.8, 0.15])
    weights = bootstrap_weights(np.arange(400), 4000, seed=1)
    low, high = interval(weights @ lost / weights.sum(1))
    oracle = stats.bootstrap((lost,), np.mean, n_resamples=4000, method="percentile", rng=2)
    wanted = oracle.confidence_interval
    assert abs(low - wanted.low) < 0.004 and abs(high - wanted.high) < 0.004
    # It also agrees with the normal approximation, which needs no resampling.
    assert high - low == pytest.approx(2 * 1.96 * stats.sem(lost), rel=0.06)


def test_copies_of_an_image_add_no_certainty() -> None:
    """With ten equal images in each of 50 clusters, the interval is that of 50 images, not of 500."""
    lost = np.random.default_rng(0).normal(size=50)
    clusters = np.repeat(np.arange(50), 10)
    widths = []
    for by, values in ((np.arange(50), lost), (clusters, lost[clusters]), (np.arange(500), lost[clusters])):
        weights = bootstrap_weights(by, 3000, seed=0)
        low, high = interval(weights @ values / weights.sum(1))
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
    assert widths[2] == pytest.approx(widths[0] / np.sqrt(10), rel=0.1)


def test_losses_are_paired_image_by_image() -> None:
    """Both are right on the same half of the images: scores are uncertain, their difference is not."""
    labels = np.ones(100, dtype=np.int64)
    right = (np.arange(100) % 2)[None, None].repeat(2, 0).repeat(2, 1)
    nothing = np.full(right.shape, np.nan, dtype=np.float32)
    said = Predictions(right, nothing, np.ones((2, 2)))
    matrix = loss_matrix(said, labels, np.arange(100), (1, 10), headline="top1", num_resamples=200, seed=0)
    assert (matrix[["loss", "loss_low", "loss_high"]] == 0).all(axis=None)
    assert (matrix["score_high"] - matrix["score_low"] > 0.1).all()


def table(*losses: tuple[int, float, float, float]) -> pd.DataFrame:
    """Return a matrix of the given groups, with the losses (mean, low, high) of each used at group 10."""
    rows = [(*loss[:1], 10, 400, "top1", 0.5, 0.4, 0.6, *loss[1:]) for loss in losses]
    return pd.DataFrame(rows, columns=MATRIX_COLUMNS)


def test_the_answer_is_the_smallest_group_whose_upper_bound_is_below_the_margin() -> None:
    matrix = table((1, 0.05, 0.03, 0.07), (2, 0.005, -0.01, 0.02), (5, 0.0, -0.004, 0.009), (10, 0, 0, 0))
    found = answer(matrix, "full", 0.01)
    assert (found.tolerated, found.undecided, found.too_few) == (5, [2], False)
    assert answer(matrix, "full", 0.08).tolerated == 1


def test_bounds_are_those_of_the_matrix_and_all_where_nothing_was_learned(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "fine")
    labels = np.array([sample.labels["class"] for sample in samples])
    found = extract_features(image_files(samples), backbone(), folder=None)
    bounds = loss_bounds(found.values, labels, GROUPS, "top1", seed=0)
    assert bounds["full"][1] > 0.2 < bounds["same"][2] and bounds["full"][5] < 0.05 > bounds["same"][5]
    drawn = np.random.default_rng(0).normal(size=found.values.shape).astype(np.float32)
    nothing = loss_bounds(drawn, labels, GROUPS, "top1", seed=0)
    assert nothing == {use: dict.fromkeys(GROUPS, 1.0) for use in ("full", "same")}


def test_data_that_are_too_few_to_tell_are_said_to_be() -> None:
    matrix = table((1, 0.0, -0.05, 0.04), (5, 0.0, -0.03, 0.02), (10, 0, 0, 0))
    found = answer(matrix, "full", 0.01)
    assert (found.tolerated, found.undecided, found.too_few) == (10, [1, 5], True)
    assert found.enough_images == 1600, "half the width wants four times the images"
    lost = answer(table((1, 0.1, 0.05, 0.15), (10, 0, 0, 0)), "full", 0.01)
    assert (lost.tolerated, lost.undecided, lost.too_few) == (10, [], False), "wide, and clear all the same"


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(-0.01, 0.009, TOLERATED), (0.01, 0.02, REFUSED), (0.0, 0.01, UNDECIDED), (0, 0, TOLERATED)],
)
def test_verdicts(low: float, high: float, word: str) -> None:
    assert verdict(low, high, 0.01) == word


def test_an_interval_that_is_narrow_but_on_the_margin_is_not_too_few_images() -> None:
    found = answer(table((1, 0.009, 0.005, 0.012), (10, 0, 0, 0)), "full", 0.01)
    assert (found.tolerated, found.undecided, found.too_few) == (10, [1], False)


def test_a_strength_is_chosen_by_weighted_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strength 1 is better on the eight images of one class, strength 2 on the two of the other."""
    labels, folds, inputs = np.array([0] * 8 + [1] * 2), np.arange(10) % 2, np.zeros((10, 1), np.float32)
    losses = {1: (0.0, 1.0), 2: (0.3, 0.5)}
    monkeypatch.setattr(classifier, "fitted", lambda *given: given[3])
    monkeypatch.setattr(classifier, "losses_of", lambda model, _, labels: np.array(losses[model])[labels])
    assert _choose(inputs, labels, np.ones(10), folds, [1, 2]) == 1
    assert _choose(inputs, labels, image_weights(labels), folds, [1, 2]) == 2


def test_a_score_that_may_be_guessing_bounds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """22 of 40 images are right: more than half, but the interval reaches below."""
    labels = np.arange(40) % 2
    said = np.where(np.arange(40) < 22, labels, 1 - labels)
    classes = np.broadcast_to(said, (2, 2, 40))
    predictions = Predictions(classes, np.full((2, 2, 40), np.nan, np.float32), np.ones((5, 2)))
    monkeypatch.setattr(answer_module, "cross_validate", lambda *_, **__: predictions)
    bounds = loss_bounds(np.zeros((2, 40, 1), np.float32), labels, [1, 10], "top1", seed=0)
    assert bounds == {use: {1: 1.0, 10: 1.0} for use in ("full", "same")}
