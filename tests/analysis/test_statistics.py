"""Intervals, paired differences and fitted lines, against other programs and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.pcr.accuracy_vs_mssim import line_through, tolerance_fits
from experiments.results.methods import over_seeds
from pcr_exp.analysis.frame import GROUP_KEYS, first_reached
from pcr_exp.analysis.reporting_rules import UNLIKE
from pcr_exp.analysis.statistics import (
    SEEDS_ALONE,
    describe_interval,
    distinct_seeds,
    half_width,
    paired_difference,
    paired_ratio,
    paired_ratios,
    spread,
)


def test_the_interval_is_students() -> None:
    values = [0.51, 0.58, 0.55]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2)
    assert half_width([1.0, 3.0]) == pytest.approx(12.7062, rel=1e-5), "t(0.975, 1) x one standard error"


@pytest.mark.parametrize("values", [[], [0.5], [0.5, math.nan]])
def test_one_value_has_no_interval(values: list[float]) -> None:
    assert math.isnan(half_width(values))


def test_the_interval_holds_the_mean_of_95_in_100_experiments() -> None:
    rng = np.random.default_rng(0)
    held = [abs(sample.mean()) <= half_width(sample) for sample in rng.normal(size=(2000, 3))]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def runs(values: dict[int, float]) -> pd.DataFrame:
    return pd.DataFrame({"seed": list(values), "top1": list(values.values())})


def test_differences_are_of_one_seed_and_the_spread_of_seeds_does_not_enter() -> None:
    ours, theirs = runs({0: 0.3, 1: 0.6, 2: 0.9}), runs({2: 0.8, 0: 0.2, 1: 0.5, 7: 0.0})
    found = paired_difference(ours, theirs, "top1")
    assert found == {
        "difference_n": 3,
        "difference_mean": pytest.approx(0.1),
        "difference_ci95": pytest.approx(0),
        "difference_freedom": 2,
        "difference_interval": SEEDS_ALONE,
    }


def timed(values: dict[int, float], timing: str = "t") -> pd.DataFrame:
    return runs(values).assign(timing=timing, timing_excluded_because="", hardware=f"CPU {timing}")


def test_a_speed_up_is_of_one_seed() -> None:
    found = paired_ratio(timed({0: 8.0, 1: 6.0}), timed({0: 2.0, 1: 3.0, 2: 1.0}), "top1")
    assert found == {"speedup": 3, "speedup_min": 2, "speedup_max": 4}


@pytest.mark.parametrize(
    "theirs", [timed({0: 2.0}, "u"), timed({}), timed({0: 2.0}).assign(timing_excluded_because="no")]
)
def test_no_speed_up_over_other_hardware_over_nothing_or_where_seconds_may_not_be_said(
    theirs: pd.DataFrame,
) -> None:
    assert all(math.isnan(value) for value in paired_ratio(timed({0: 8.0}), theirs, "top1").values())


def test_runs_of_unlike_hardware_have_no_mean_of_seconds() -> None:
    mixed = pd.concat([timed({0: 8.0}), timed({1: 6.0}, "u")]).assign(accuracy=[0.5, 0.7], label="photo")
    row = over_seeds(mixed, ["label"], ["top1", "accuracy"], ["top1"])
    assert (row["label"], row["n"], row["hardware"]) == ("photo", 2, "CPU t / CPU u")
    assert (
        row["timing_excluded_because"] == UNLIKE
        and math.isnan(row["top1_mean"])
        and row["accuracy_mean"] == 0.6
    )
    alike = over_seeds(pd.concat([timed({0: 8.0}), timed({0: 8.0, 1: 6.0})]), [], ["top1"], ["top1"])
    assert (alike["n"], alike["timing_excluded_because"], alike["top1_mean"]) == (2, "", 7)


def test_no_seed_in_common_is_no_difference() -> None:
    found = paired_difference(runs({0: 0.3}), runs({1: 0.2}), "top1")
    assert found["difference_n"] == 0 and math.isnan(found["difference_mean"])
    assert math.isnan(found["difference_freedom"]) and found["difference_interval"] == ""


def test_the_interval_is_named_with_its_degrees_of_freedom() -> None:
    rows = pd.DataFrame(
        {
            "difference_interval": [SEEDS_ALONE, "t over seeds and images", "t over seeds and images", ""],
            "difference_freedom": [2.0, 11.27, 40.5, math.nan],
            "difference_n": [3, 3, 5, 1],
        }
    )
    assert describe_interval(rows) == (
        "t over seeds alone, 2 degrees of freedom / t over seeds and images, 11.3 to 40.5 degrees of freedom"
    )
    assert describe_interval(rows.iloc[3:]) == "none: n = 1"
    baseline = rows.iloc[3:].assign(difference_n=0)
    assert describe_interval(baseline) == "none: nothing to compare with"


def test_a_fold_is_a_repeat_as_a_seed_is() -> None:
    """Five folds of one seed are five runs, and each is compared with the baseline of its fold."""
    folds = [f"{fold} of 5" for fold in range(5)]
    ours = pd.DataFrame({"seed": 0, "fold": folds, "top1": [0.5, 0.6, 0.7, 0.8, 0.9]})
    theirs = ours.assign(top1=ours["top1"] - 0.1).iloc[::-1]
    assert len(distinct_seeds(ours)) == 5
    found = paired_difference(ours, theirs, "top1")
    assert found["difference_n"] == 5 and found["difference_mean"] == pytest.approx(0.1)


def test_ratios_are_of_one_seed_and_their_denominator_scatters() -> None:
    """Dividing by the mean denominator would move each ratio by 0.1. Within a seed, both are exactly 2."""
    over, under = runs({0: 2.0, 1: 2.2}), runs({1: 1.1, 0: 1.0})
    assert paired_ratios(over, under, "top1").tolist() == pytest.approx([2, 2])


def test_a_seed_counts_once() -> None:
    twice = pd.concat([runs({0: 0.3}), runs({0: 0.3, 1: 0.5})])
    assert distinct_seeds(twice)["top1"].tolist() == [0.3, 0.5]
    assert paired_difference(twice, runs({0: 0.2, 1: 0.2}), "top1")["difference_n"] == 2


def test_no_mean_of_the_lucky() -> None:
    found = spread(pd.DataFrame({"s": [1.0, math.nan]}), ["s"])
    assert len(found) == 3 and all(map(math.isnan, found.values()))
    assert spread(pd.DataFrame({"s": [1.0, 3.0]}), ["s"]) == {"s_mean": 2, "s_min": 1, "s_max": 3}


def test_the_first_evaluation_at_the_target_counts() -> None:
    rows = [
        {"kind": "train"},
        *({"kind": "eval", "eval_group": "full", "val_score": top1} for top1 in (0.2, 0.6, 0.5, 0.7)),
    ]
    found = first_reached(rows, 0.5)
    assert found is not None and found["val_score"] == 0.6
    assert first_reached(rows, 0.8) is None


LEVELS = pd.DataFrame({"x": [0.7, 0.8, 0.9, 0.95, 1.0], "y": [0.31, 0.42, 0.48, 0.55, 0.56]})


def test_a_line_has_an_interval_for_its_slope() -> None:
    line = line_through(LEVELS, "x", "y")
    assert line is not None
    # By hand: the least-squares slope, and its standard error times t(0.975, 3).
    x, y = LEVELS["x"], LEVELS["y"]
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    rest = y - y.mean() - slope * (x - x.mean())
    error = math.sqrt((rest**2).sum() / 3 / ((x - x.mean()) ** 2).sum())
    assert line.slope == pytest.approx(slope) and line.slope_ci95 == pytest.approx(3.18245 * error, rel=1e-4)
    assert line.intercept == pytest.approx(y.mean() - slope * x.mean())


def test_whether_a_line_is_one_is_tested_by_its_curvature() -> None:
    """A correlation of 0.97 does not prove a line: five levels on a parabola are distinguished from one."""
    bent = LEVELS.assign(y=1 - 4 * (1 - LEVELS["x"]) ** 2 + np.array([1, -2, 2, -2, 1]) / 1000)
    straight, curve = line_through(LEVELS, "x", "y"), line_through(bent, "x", "y")
    assert straight is not None and straight.bend_p > 0.1 and straight.r > 0.97
    assert curve is not None and curve.bend_p < 0.01 and curve.r > 0.95
    # By hand: the F test of the quadratic coefficient.
    design = np.vander(bent["x"], 3)
    left = [
        ((bent["y"] - some @ np.linalg.lstsq(some, bent["y"])[0]) ** 2).sum()
        for some in (design[:, 1:], design)
    ]
    assert curve.bend_p == pytest.approx(stats.f.sf((left[0] - left[1]) / (left[1] / 2), 1, 2), rel=1e-3)
    exact = line_through(LEVELS.assign(y=2 * LEVELS["x"]), "x", "y")
    assert exact is not None and exact.bend_p == 1


def test_a_curve_is_drawn_without_a_line() -> None:
    facts = dict(zip(GROUP_KEYS, ("cars", "model", "resnet18", "hdd", "1a2b3c4d"), strict=True))
    rows = LEVELS.assign(scan=[f"group_{i}" for i in range(5)], seed=0, **facts)
    line = rows.rename(columns={"x": "ms_ssim", "y": "final_score"})
    curve = line.assign(final_score=1 - 4 * (1 - line["ms_ssim"]) ** 2 + np.array([1, -2, 2, -2, 1]) / 1000)
    (straight,), (bent,) = (tolerance_fits(points).to_dict("records") for points in (line, curve))
    assert straight["no_line"] == "" and straight["slope"] > 0
    assert bent["no_line"].startswith("no line: 5 levels of quality lie on a curve (p = 0.0")
    assert math.isnan(bent["slope"]) and math.isnan(bent["r"])


def test_fewer_than_five_levels_have_no_line() -> None:
    assert line_through(LEVELS.iloc[:4], "x", "y") is None
    assert line_through(pd.concat([LEVELS.iloc[:4]] * 3), "x", "y") is None, "more seeds are no more levels"


def test_a_flat_line_has_no_correlation() -> None:
    line = line_through(LEVELS.assign(y=0.5), "x", "y")
    assert line is not None and line.slope == pytest.approx(0, abs=1e-12) and math.isnan(line.r)
