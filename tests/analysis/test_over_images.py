"""Differences between runs that saved predictions of every image have intervals over images too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pcr_exp.analysis.over_images import FOLDS_AND_IMAGES, SEEDS_AND_IMAGES, two_classes, with_intervals
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.statistics import SEEDS_ALONE, paired_difference
from pcr_exp.runs.predictions import Predictions, predictions_below, write_predictions
from pcr_exp.training.task import Tally, mean_auc

MakeRun = Callable[..., Path]
NUM_IMAGES = 400
SCANS = ("baseline", "group_1", "group_5")


def said(images: Sequence[int], share: float, seed: int, *, scrambled: bool = False) -> Predictions:
    """Predictions that are right for a share of the images; much the same images are hard for every seed."""
    ids = np.array(images, dtype=np.uint64)
    ease = np.random.default_rng(7).random(10_000)[ids] + 0.2 * np.random.default_rng(seed).random(len(ids))
    order = np.random.default_rng(8).permutation(len(ids)) if scrambled else np.arange(len(ids))
    found = Predictions(ids[order], (ids[order] % 3).astype(np.int32))
    correct = (ease <= np.quantile(ease, share))[order]
    for at, right in ((1, ~correct), (3, correct)):
        found.keep(at, "full", float(right.mean()), label=found.label, correct=right, loss=1.0 - 0.9 * right)
    return found


def frame(scores: dict[str, Sequence[float]], folds: bool = False) -> pd.DataFrame:
    rows = [
        {
            "run_id": f"{scan}-{repeat}",
            "scan": scan,
            "encoding": "baseline" if scan == "baseline" else "pcr",
            "seed": 0 if folds else repeat,
            **({"fold": f"{repeat} of 3"} if folds else {}),
            "headline": "top1",
            "final_score": score,
        }
        for scan, of_scan in scores.items()
        for repeat, score in enumerate(of_scan)
    ]
    return pd.DataFrame(rows)


SCORES = {"baseline": (0.80, 0.81, 0.79), "group_1": (0.70, 0.72, 0.69), "group_5": (0.79, 0.80, 0.78)}


def kept(images: Callable[[int], Sequence[int]], **more: Any) -> dict[str, Predictions]:
    return {
        f"{scan}-{repeat}": said(images(repeat), score, repeat, **more)
        for scan, of_scan in SCORES.items()
        for repeat, score in enumerate(of_scan)
    }


def found_with(predictions: dict[str, Predictions], runs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    runs = runs.assign(predictions=[predictions.get(run_id) for run_id in runs["run_id"]])
    return with_intervals(runs, runs[runs["encoding"] == "baseline"], "final_score")


def test_seeds_that_happen_to_agree_do_not_make_an_interval_narrow() -> None:
    """Group 5 is one point below the baseline with every seed: ± 0 over seeds alone, wider with images."""
    runs = frame(SCORES)
    alone = found_with({}, runs)["group_5"]
    assert alone["difference_ci95"] == pytest.approx(0, abs=1e-9)
    assert alone["difference_interval"] == SEEDS_ALONE
    both = found_with(kept(lambda _: range(NUM_IMAGES)), runs)["group_5"]
    assert both["difference_mean"] == pytest.approx(-0.01) and both["difference_n"] == 3
    assert both["difference_ci95"] > 0.005
    assert both["difference_freedom"] > 2 and both["difference_interval"] == SEEDS_AND_IMAGES


def test_images_are_found_again_in_any_order() -> None:
    runs = frame(SCORES)
    straight = kept(lambda _: range(NUM_IMAGES))
    mixed = {**straight, "group_1-0": said(range(NUM_IMAGES), SCORES["group_1"][0], 0, scrambled=True)}
    assert found_with(mixed, runs)["group_1"] == pytest.approx(found_with(straight, runs)["group_1"])
    by_class = runs.assign(headline="balanced_accuracy")
    all_mixed = kept(lambda _: range(NUM_IMAGES), scrambled=True)
    assert found_with(all_mixed, by_class)["group_1"] == pytest.approx(
        found_with(straight, by_class)["group_1"]
    )


def test_folds_have_images_of_their_own() -> None:
    runs = frame(SCORES, folds=True)
    found = found_with(kept(lambda fold: range(300 * fold, 300 * fold + 300)), runs)["group_1"]
    assert found["difference_interval"] == FOLDS_AND_IMAGES and found["difference_n"] == 3
    assert 0.01 < found["difference_ci95"] < 0.1
    overlapping = found_with(kept(lambda fold: range(200 * fold, 200 * fold + 300)), runs)["group_1"]
    assert overlapping["difference_interval"] == SEEDS_ALONE


@pytest.mark.parametrize(
    "lacking",
    [
        pytest.param({"group_1-1": None}, id="a run kept none"),
        pytest.param({"group_1-1": said(range(9, 409), 0.7, 1)}, id="other images at a level"),
        pytest.param({"baseline-2": said(range(300), 0.7, 1)}, id="fewer images of a seed"),
    ],
)
def test_where_images_cannot_tell_the_interval_is_over_seeds_alone(lacking: dict[str, Any]) -> None:
    runs = frame(SCORES)
    predictions = {**kept(lambda _: range(NUM_IMAGES)), **lacking}
    known = {run_id: found for run_id, found in predictions.items() if found is not None}
    wanted = paired_difference(
        runs[runs["scan"] == "group_1"], runs[runs["scan"] == "baseline"], "final_score"
    )
    assert found_with(known, runs)["group_1"] == wanted
    other = runs.assign(headline="something of one's own")
    assert found_with(kept(lambda _: range(NUM_IMAGES)), other)["group_1"] == wanted


def test_a_level_that_lacks_a_seed_is_not_pooled() -> None:
    runs = frame({**SCORES, "group_1": (0.70, 0.72)})
    found = found_with(kept(lambda _: range(NUM_IMAGES)), runs)
    assert found["group_1"]["difference_interval"] == SEEDS_ALONE
    assert found["group_5"]["difference_interval"] == SEEDS_AND_IMAGES


@pytest.mark.parametrize("scrambled", [False, True], ids=["straight", "in another order"])
def test_a_level_trained_on_the_same_pixels_narrows_no_interval(scrambled: bool) -> None:
    """Group 10 has all scans, so it trains exactly as the baseline does, bit for bit."""
    without = found_with(kept(lambda _: range(NUM_IMAGES)), frame(SCORES))
    again = {
        f"group_10-{repeat}": said(range(NUM_IMAGES), score, repeat, scrambled=scrambled)
        for repeat, score in enumerate(SCORES["baseline"])
    }
    control = frame({**SCORES, "group_10": SCORES["baseline"]})
    found = found_with({**kept(lambda _: range(NUM_IMAGES)), **again}, control)
    assert found["group_10"]["difference_ci95"] == 0 and found["group_10"]["difference_interval"] == ""
    assert found["group_1"] == pytest.approx(without["group_1"])
    assert found["group_5"] == pytest.approx(without["group_5"])


def test_equal_scores_are_not_the_same_training() -> None:
    runs = frame({**SCORES, "group_10": SCORES["baseline"]})
    others = {
        f"group_10-{repeat}": said(range(NUM_IMAGES), score, repeat + 1)
        for repeat, score in enumerate(SCORES["baseline"])
    }
    found = found_with({**kept(lambda _: range(NUM_IMAGES)), **others}, runs)["group_10"]
    assert found["difference_ci95"] > 0 and found["difference_interval"] == SEEDS_AND_IMAGES


def test_the_loss_on_the_label_ranks_images_of_two_classes() -> None:
    """The AUC from this ranking equals the AUC of the outputs themselves."""
    rng = np.random.default_rng(0)
    margins, labels = rng.normal(size=200), rng.integers(0, 2, 200)
    loss = np.log1p(np.exp(np.where(labels == 1, -margins, margins)))
    ranked = two_classes(labels, loss)
    assert ranked[:, 1] == pytest.approx(margins) and ranked[:, 0] == pytest.approx(-margins)
    area = mean_auc(Tally({}, {"label": labels, "probabilities": ranked}))
    assert area == pytest.approx(
        mean_auc(Tally({}, {"label": labels, "probabilities": np.c_[-margins, margins]}))
    )


@pytest.mark.usefixtures("light_figures")
def test_the_tables_of_a_packed_set_have_them(tmp_path: Path, make_run: MakeRun) -> None:
    """summary.csv and its page state what the interval covers and its degrees of freedom."""
    root, out = tmp_path / "runs", tmp_path / "out"
    for scan, of_scan in SCORES.items():
        for seed, score in enumerate(of_scan):
            folder = make_run(root, scan, seed=seed, top1=(0.3, 0.5, score))
            said(range(NUM_IMAGES), score, seed).write(folder / "predictions.npz", folder.name)
    write_report(root, tmp_path / "nothing", out)
    summary = pd.read_csv(out / "summary.csv").set_index("scan")
    assert summary.loc["group_5", "difference_interval"] == SEEDS_AND_IMAGES
    assert summary.loc["group_5", "difference_ci95"] > 0.005
    assert f"({SEEDS_AND_IMAGES}, " in (out / "summary.md").read_text()
    found = predictions_below(root)
    write_predictions(tmp_path / "predictions.npz", found)
    assert predictions_below(tmp_path).keys() == found.keys()


@pytest.mark.usefixtures("light_figures")
@pytest.mark.parametrize("max_train_images", ["null", "30"])
def test_the_folds_of_a_task_are_rows_of_one_table(
    tmp_path: Path, make_run: MakeRun, max_train_images: str
) -> None:
    """There is one line per level over five folds, although each fold has its own images key.

    With a limit on training images, folds differ in the number of all their images as well.
    """
    root, out = tmp_path / "runs", tmp_path / "out"
    for scan, score in (("baseline", 0.8), ("group_1", 0.7)):
        for fold in range(5):
            folder = make_run(root, scan, seed=fold, top1=(0.3, score + fold / 100))
            _of_fold(folder, fold, max_train_images)
    write_report(root, tmp_path / "nothing", out)
    summary = pd.read_csv(out / "summary.csv").set_index("scan")
    assert summary["n"].to_dict() == {"baseline": 5, "group_1": 5}
    assert summary.loc["group_1", "difference_n"] == 5
    assert summary.loc["group_1", "difference_mean"] == pytest.approx(-0.1)
    assert pd.read_csv(out / "runs.csv")["fold"].nunique() == 5
    beside = pd.read_csv(out / "side_by_side.csv").query("scan == 'group_1'")
    assert beside["difference_points"].tolist() == pytest.approx([-10] * 5), "to the baseline of its fold"


def _of_fold(folder: Path, fold: int, max_train_images: str) -> None:
    """Rewrite a run's files as if it had seed 0 and this fold of five."""
    manifest = json.loads((folder / "manifest.json").read_text())
    num_val = 20 if max_train_images == "null" else 20 + fold
    manifest |= {"seed": 0, "images_key": f"{fold:016x}", "num_train": 70, "num_tune": 10, "num_val": num_val}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    config = (folder / "config.yaml").read_text()
    for key, value in (("num_folds", 5), ("fold", fold), ("max_train_images", max_train_images)):
        assert f"  {key}: null" in config
        config = config.replace(f"  {key}: null", f"  {key}: {value}")
    (folder / "config.yaml").write_text(config.replace(f"\nseed: {fold}\n", "\nseed: 0\n"))


def test_a_baseline_that_ran_twice_is_no_level() -> None:
    runs, said_of = frame(SCORES), kept(lambda _: range(NUM_IMAGES))
    again = runs[runs["encoding"] == "baseline"].assign(run_id=lambda rows: rows["run_id"] + "-again")
    more = {f"{name}-again": one for name, one in said_of.items() if name.startswith("baseline")}
    twice = found_with(said_of | more, pd.concat([runs, again]))
    assert twice["group_1"] == pytest.approx(found_with(said_of, runs)["group_1"])
