"""Intervals over runs and images, against simulated trainings with known answers and other methods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from experiments.claims.committed import found_at
from pcr_exp.analysis.intervals import (
    INFLUENCES,
    Differences,
    differences,
    half_of,
    of_folds,
    of_shared_images,
    strata_of,
)
from pcr_exp.analysis.statistics import half_width
from pcr_exp.measuring.tolerance.answer import score

Floats = NDArray[np.float64]
EASE = np.array([0.8, 0.75, 0.6, 0.3])
"""Ease of images at the baseline and three levels on a probit scale: accuracies from about 75 to 60 %."""
ALIKE, MIXED, APART = (1.0, 0.6, 0.1), (1.0, 0.3, 0.5), (1.0, 0.1, 0.8)
"""Deviations of an image's difficulty: overall, per level, per run. ALIKE runs classify images alike."""


def trainings(
    rng: np.random.Generator, count: int, runs: int, images: int, of_run: float, of_image: tuple[float, ...]
) -> tuple[NDArray[np.float32], Floats]:
    """Return whether each image is classified correctly, [count, 1 + L, S, N], and the L true differences."""
    itself, at_level, alone = of_image
    shape = (count, len(EASE), runs, images)
    ease = EASE[:, None, None] + itself * rng.standard_normal((count, 1, 1, images), np.float32)
    ease = ease + at_level * rng.standard_normal((count, len(EASE), 1, images), np.float32)
    ease = ease + of_run * rng.standard_normal((*shape[:3], 1), np.float32)
    named = (ease + alone * rng.standard_normal(shape, np.float32) > 0).astype(np.float32)
    expected = stats.norm.cdf(EASE / math.sqrt(of_run**2 + sum(part**2 for part in of_image)))
    return named, expected[1:] - expected[0]


def of_seeds(named: NDArray[np.float32]) -> Differences:
    """Return the interval for trainings whose seeds share their images."""
    images = named.shape[-1]
    found = of_shared_images(named / images, np.zeros(images))
    return differences(named.mean(axis=-1), found)


def of_disjoint(named: NDArray[np.float32]) -> Differences:
    """Return the interval if run s alone validates every S-th image, from image s on."""
    runs = named.shape[-2]
    own = [named[..., run, run::runs] for run in range(runs)]
    folds = [(each / each.shape[-1], np.zeros(each.shape[-1])) for each in own]
    return differences(np.stack([each.mean(axis=-1) for each in own], axis=-1), of_folds(folds))


def held(found: Differences, true: Floats) -> float:
    return float((abs(found.mean - true) <= found.half_width).mean())


@pytest.mark.parametrize("runs", [3, 5, 8])
@pytest.mark.parametrize("of_image", [ALIKE, MIXED, APART], ids=["alike", "mixed", "apart"])
def test_95_of_100_intervals_hold_the_truth(runs: int, of_image: tuple[float, ...]) -> None:
    """Runs move accuracy by 0, 1.5 and 4 points, so variance comes from images, from both, and from runs."""
    rng = np.random.default_rng(runs)
    found = []
    for of_run in (0.0, 0.05, 0.15):
        named, true = trainings(rng, 500, runs, 300, of_run, of_image)
        found.append(held(of_seeds(named), true))
    assert 0.93 <= np.mean(found) <= 0.97
    assert all(0.925 <= each <= 0.985 for each in found), "and none of the three is far from it"


@pytest.mark.parametrize("runs", [3, 5, 8])
def test_so_do_those_of_folds(runs: int) -> None:
    rng = np.random.default_rng(runs)
    found = []
    for of_run in (0.0, 0.05, 0.15):
        named, true = trainings(rng, 700, runs, 120 * runs, of_run, MIXED)
        found.append(held(of_disjoint(named), true))
    assert 0.93 <= np.mean(found) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("of_run", [0.0, 0.02, 0.05, 0.15])
@pytest.mark.parametrize("of_image", [ALIKE, MIXED, APART], ids=["alike", "mixed", "apart"])
@pytest.mark.parametrize("runs", [2, 3, 5, 8])
def test_95_of_100_intervals_hold_the_truth_in_each_setting(
    runs: int, of_image: tuple[float, ...], of_run: float
) -> None:
    """24,000 intervals per setting. A negative rest of variance counts as zero, which only widens them."""
    rng = np.random.default_rng(runs)
    seeds, folds = [], []
    for _ in range(16):
        named, true = trainings(rng, 500, runs, 400, of_run, of_image)
        seeds.append(held(of_seeds(named), true))
        folds.append(held(of_disjoint(named), true))
    assert 0.93 <= np.mean(seeds) <= 0.98
    assert 0.93 <= np.mean(folds) <= 0.98


@pytest.mark.parametrize("runs", [2, 3])
def test_a_single_level_of_two_or_three_runs_that_scatter_holds_it_too_seldom(runs: int) -> None:
    """As the module states. If two more levels are pooled, the same runs are enough."""
    named, true = trainings(np.random.default_rng(runs), 1000, runs, 300, 0.15, MIXED)
    assert 0.85 <= held(of_seeds(named[:, :2]), true[:1]) <= 0.93 <= held(of_seeds(named), true)


def test_seeds_alone_hold_it_far_too_seldom_where_images_decide() -> None:
    """Student's t over three seeds, as in earlier tables, ignores the sampling of images."""
    named, true = trainings(np.random.default_rng(0), 500, 3, 300, 0.0, ALIKE)
    scores = named.mean(axis=-1)
    apart = scores[:, 1:] - scores[:, :1]
    half = half_of(stats.sem(apart, axis=-1), 2)
    assert (abs(apart.mean(axis=-1) - true) <= half).mean() < 0.75 < 0.93 <= held(of_seeds(named), true)


def test_without_images_it_is_students_t_over_seeds() -> None:
    """For one level. With several, one variance is pooled over all, and degrees of freedom add up."""
    scores = np.array([[0.70, 0.74, 0.71], [0.69, 0.70, 0.70]])
    one = differences(scores)
    assert one.half_width[0] == pytest.approx(half_width(scores[1] - scores[0]))
    assert one.freedom[0] == 2
    lucky = np.vstack([scores, scores[0] - 0.05])  # three differences that happen to agree
    both = differences(lucky)
    assert both.mean == pytest.approx([-0.02, -0.05])
    assert both.half_width[0] == both.half_width[1] > 0.01 and both.freedom.tolist() == [4, 4]


def test_pooled_is_the_interaction_of_a_two_way_analysis_of_variance() -> None:
    """By hand: the mean variance over all pairs of levels is twice the residual mean square."""
    scores = np.random.default_rng(1).normal(size=(4, 5))
    pairs = [(one, other) for one in range(4) for other in range(one)]
    mean_of_pairs = np.mean([np.var(scores[one] - scores[other], ddof=1) for one, other in pairs])
    found = differences(scores)
    assert found.variance == pytest.approx(mean_of_pairs / 5)
    assert found.freedom == pytest.approx(3 * 4)


def test_images_that_all_runs_agree_on_leave_their_sampling_alone() -> None:
    """Three equal seeds do not scatter, so the interval equals that of a paired proportion."""
    named = np.repeat(np.random.default_rng(2).random((2, 1, 200)) > 0.3, 3, axis=1).astype(np.float32)
    found = of_seeds(named)
    apart = named[1, 0] - named[0, 0]
    assert found.variance[0] == pytest.approx(apart.var(ddof=1) / 200)
    assert found.freedom[0] == pytest.approx(199)


def models(rng: np.random.Generator, images: int, classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return class scores, [2 levels, 3 seeds, N, C], and labels whose last class is rare."""
    labels = rng.choice(classes, size=images, p=[0.6, 0.3, 0.1][:classes] if classes == 3 else [0.7, 0.3])
    scores = rng.normal(size=(2, 3, images, classes)) + rng.normal(size=(images, classes))
    scores[..., np.arange(images), labels] += 1.0
    return scores, labels


@pytest.mark.parametrize(("headline", "classes"), [("top1", 3), ("balanced_accuracy", 3), ("auc", 2)])
def test_the_closed_form_is_the_bootstrap(headline: str, classes: int) -> None:
    """The bootstrap has 4,000 resamples of images, shared by all runs and scored as experiments.tolerance."""
    rng = np.random.default_rng(3)
    scores, labels = models(rng, 500, classes)
    strata = strata_of(headline, labels)
    weights = np.zeros((4000, len(labels)))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        # With n - 1 draws of weight n / (n - 1), the bootstrap's variance has no bias.
        draws = rng.multinomial(len(members) - 1, np.full(len(members), 1 / len(members)), size=4000)
        weights[:, members] = draws * len(members) / (len(members) - 1)
    named = scores.argmax(axis=-1)
    resampled = np.array(
        [
            [score(headline, named[level, seed], odds[level, seed], labels, weights) for seed in range(3)]
            for odds in [scores[..., 1] - scores[..., 0]]
            for level in range(2)
        ]
    )
    apart = (resampled[1] - resampled[0]).mean(axis=0)
    influence = np.array(
        [
            [
                INFLUENCES[headline](labels, named[level, seed] == labels, _ranked(scores[level, seed]))
                for seed in range(3)
            ]
            for level in range(2)
        ]
    )
    found = of_shared_images(influence, strata)
    assert found.variance[0] == pytest.approx(apart.var(), rel=0.08)
    assert influence[0, 0].sum() == pytest.approx(
        score(headline, named[0, 0], _odds(scores[0, 0]), labels, np.ones((1, len(labels))))[0]
        * (2 if headline == "auc" else 1)
    ), "an image's influence is its share of the score; of an AUC both sides have one"
    lone = resampled[0, 0] - resampled[0, 1] - resampled[1, 0] + resampled[1, 1]
    assert found.of_runs == pytest.approx(_lone_variance(resampled), rel=0.08) and lone.var() > 0


def _odds(scores: Floats) -> NDArray[np.float32]:
    return np.asarray(scores[:, 1] - scores[:, 0], dtype=np.float32)


def _ranked(scores: Floats) -> Floats:
    return scores if scores.shape[1] > 2 else np.stack([-_odds(scores), _odds(scores)], axis=1)


def _lone_variance(resampled: Floats) -> float:
    """Return the resampling variance specific to one run of one level, as that of a mean difference."""
    rest = resampled - resampled.mean(axis=0, keepdims=True)
    rest = rest - rest.mean(axis=1, keepdims=True)
    return float(2 * rest.var(axis=-1).sum() / (1 * 2) / 3)


def test_an_auc_of_several_classes_is_their_mean() -> None:
    scores, labels = models(np.random.default_rng(4), 300, 3)
    found = INFLUENCES["auc"](labels, labels == 0, scores[0, 0])
    areas = []
    for number in range(3):
        own, others = scores[0, 0, labels == number, number], scores[0, 0, labels != number, number]
        areas.append((own[:, None] > others).mean())
    assert found.sum() / 2 == pytest.approx(np.mean(areas))


def test_a_class_of_one_image_has_no_variance_that_is_known() -> None:
    labels = np.array([0] * 50 + [1])
    named = np.random.default_rng(5).random((2, 3, 51)) > 0.5
    influence = np.array(
        [[INFLUENCES["balanced_accuracy"](labels, seed, None) for seed in one] for one in named]
    )
    found = of_shared_images(influence, labels)
    assert np.isfinite(found.variance).all() and found.freedom[0] == pytest.approx(49)


@pytest.mark.parametrize("freedom", [1, 2, 4, 12, 200])
def test_80_of_100_experiments_would_have_found_it(freedom: int) -> None:
    rng = np.random.default_rng(freedom)
    effect = found_at(float(half_of(1.0, freedom)), freedom)
    errors = np.sqrt(rng.chisquare(freedom, 20_000) / freedom)
    means = effect + rng.standard_normal(20_000)
    assert (abs(means) > half_of(errors, freedom)).mean() == pytest.approx(0.8, abs=0.01)
    assert math.isnan(found_at(1.0, math.nan)) and found_at(0.0, freedom) == 0
    assert found_at(1.96, math.inf) == pytest.approx(2.8, abs=0.01)
