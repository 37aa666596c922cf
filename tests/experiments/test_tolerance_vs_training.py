"""Points lost by training, compared with the points that `tolerance` predicted."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.pcr.tolerance_slopes import measured_in
from experiments.pcr.tolerance_vs_training import correlations, foretold, write_comparison
from pcr_exp.errors import RunError

RESULTS = Path(__file__).parents[2] / "results"
TRAINED = [RESULTS / "finetuning" / "cars", RESULTS / "finetuning" / "ham10000_folds"]
CARS = "Stanford Cars, 196 classes, about 260 px, q75"
HEADLINES = {CARS: "top1", "HAM10000, seven classes, 224 px, q95": "balanced_accuracy"}


def points(error: float) -> pd.DataFrame:
    """Return two tasks at three groups, used in full; the second is predicted in the wrong order."""
    return pd.DataFrame(
        {
            "dataset": ["a"] * 3 + ["b"] * 3,
            "label": "it",
            "deployment": "full",
            "group": [1, 2, 5] * 2,
            "foretold": [20.0, 5.0, 1.0, 2.0, 3.0, 4.0],
            "lost": [15.0, 6.0, 0.5, 4.5, 3.5, 2.5],
            "foretold_error": error,
            "lost_error": error,
            "lost_freedom": 2.0,
        }
    )


def test_the_correlation_is_of_ranks() -> None:
    (found,) = correlations(points(1e-9)).to_dict("records")
    rows = points(0)
    assert found["rank_correlation"] == pytest.approx(stats.spearmanr(rows["foretold"], rows["lost"])[0])
    assert found["low"] == pytest.approx(found["rank_correlation"]) == pytest.approx(found["high"])
    assert found["within"] == pytest.approx(-1)
    assert found["mean_error"] == pytest.approx(np.mean([5, 1, 0.5, 2.5, 0.5, 1.5]))
    assert found["above"] == pytest.approx(3 / 6)


def test_mixtures_of_groups_are_no_points() -> None:
    deployment = pd.read_csv(RESULTS / "finetuning" / "celebahq" / "deployment.csv")
    assert deployment["group"].isna().any()
    rows = foretold(measured_in(RESULTS / "tolerance"), [RESULTS / "finetuning" / "celebahq"])
    assert sorted({str(group) for group in rows["group"]}) == ["1", "2", "5"]


def test_errors_of_points_widen_its_interval() -> None:
    """If errors hide all differences, draws are random: for 6 points, 95 % lie between -0.83 and 0.83."""
    (found,) = correlations(points(1e6)).to_dict("records")
    assert found["low"] == pytest.approx(-0.83, abs=0.07) and found["high"] == pytest.approx(0.83, abs=0.07)


def test_few_seeds_widen_its_interval() -> None:
    """Student's t of one degree of freedom has longer tails than a normal error."""
    exact = points(1.0).assign(foretold_error=1e-9)
    few, many = (correlations(exact.assign(lost_freedom=freedom)).iloc[0] for freedom in (1.0, 1e9))
    assert few["high"] - few["low"] > many["high"] - many["low"] + 0.1


def test_a_setting_with_a_single_run_is_left_out(tmp_path: Path) -> None:
    deployment = pd.read_csv(TRAINED[0] / "deployment.csv")
    single = deployment["group"] == 2
    deployment.loc[single, ["n", "difference_n"]] = 1
    deployment.loc[single, ["difference_ci95", "difference_freedom"]] = float("nan")
    deployment.to_csv(tmp_path / "deployment.csv")
    rows = foretold([RESULTS / "tolerance" / "cars_model"], [tmp_path])
    assert 5 in set(rows["group"]) and 2 not in set(rows["group"])


def test_points_are_those_of_both_files() -> None:
    rows = foretold(measured_in(RESULTS / "tolerance"), TRAINED).set_index(["dataset", "deployment", "group"])
    assert {name for name, _, _ in rows.index} == set(HEADLINES)
    deployment = pd.read_csv(TRAINED[0] / "deployment.csv").set_index(["tested_at", "group"])
    answers = pd.read_csv(RESULTS / "tolerance" / "cars_model" / "answers.csv")
    answer = answers[(answers["deployment"] == "same") & (answers["train_group"] == 2)].iloc[0]
    found, trained = rows.loc[(CARS, "same", 2)], deployment.loc[("same", 2)]
    assert found["lost"] == pytest.approx(-100 * trained["difference_mean"])
    width = found["lost_error"] * stats.t.ppf(0.975, trained["difference_freedom"])
    assert width == pytest.approx(100 * trained["difference_ci95"])
    assert found["foretold"] == pytest.approx(100 * answer["loss"])
    assert 2 * 1.96 * found["foretold_error"] == pytest.approx(
        100 * (answer["loss_high"] - answer["loss_low"]), rel=1e-3
    )
    assert (rows["headline"] == rows.index.get_level_values("dataset").map(HEADLINES)).all()


def test_tasks_that_nobody_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cars: no task.*tolerance/celebahq_smiling.*Wanted at least one"):
        foretold([RESULTS / "tolerance" / "celebahq_smiling"], TRAINED[:1])
    assert write_comparison(RESULTS / "tolerance", TRAINED, tmp_path)["n"].min() == 3
    assert "| used at all scans | 6 | 2 |" in (tmp_path / "tolerance_vs_training.md").read_text()
