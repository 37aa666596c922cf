"""Intervals, paired differences and lines, against other programs and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pcr_exp.analysis.core.permitted import UNLIKE
from pcr_exp.analysis.core.runs_table import first_reached
from pcr_exp.analysis.core.statistics import (
    distinct_seeds,
    half_width,
    over_seeds,
    paired_difference,
    paired_ratio,
    spread,
)
from pcr_exp.analysis.scans.accuracy_vs_mssim import line_through


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
    }


def timed(values: dict[int, float], timing: str = "t") -> pd.DataFrame:
    return runs(values).assign(timing=timing, no_seconds="", hardware=f"CPU {timing}")


def test_a_speed_up_is_of_one_seed() -> None:
    found = paired_ratio(timed({0: 8.0, 1: 6.0}), timed({0: 2.0, 1: 3.0, 2: 1.0}), "top1")
    assert found == {"speedup": 3, "speedup_min": 2, "speedup_max": 4}


@pytest.mark.parametrize("theirs", [timed({0: 2.0}, "u"), timed({}), timed({0: 2.0}).assign(no_seconds="no")])
def test_no_speed_up_over_other_hardware_over_nothing_or_where_seconds_may_not_be_said(
    theirs: pd.DataFrame,
) -> None:
    assert all(math.isnan(value) for value in paired_ratio(timed({0: 8.0}), theirs, "top1").values())


def test_runs_of_unlike_hardware_have_no_mean_of_seconds() -> None:
    mixed = pd.concat([timed({0: 8.0}), timed({1: 6.0}, "u")]).assign(accuracy=[0.5, 0.7], label="photo")
    row = over_seeds(mixed, ["label"], ["top1", "accuracy"], ["top1"])
    assert (row["label"], row["n"], row["hardware"]) == ("photo", 2, "CPU t / CPU u")
    assert row["no_seconds"] == UNLIKE and math.isnan(row["top1_mean"]) and row["accuracy_mean"] == 0.6
    alike = over_seeds(pd.concat([timed({0: 8.0}), timed({0: 8.0, 1: 6.0})]), [], ["top1"], ["top1"])
    assert (alike["n"], alike["no_seconds"], alike["top1_mean"]) == (2, "", 7)


def test_no_seed_in_common_is_no_difference() -> None:
    found = paired_difference(runs({0: 0.3}), runs({1: 0.2}), "top1")
    assert found["difference_n"] == 0 and math.isnan(found["difference_mean"])


def test_a_seed_counts_once() -> None:
    twice = pd.concat([runs({0: 0.3}), runs({0: 0.3, 1: 0.5})])
    assert distinct_seeds(twice)["top1"].tolist() == [0.3, 0.5]
    assert paired_difference(twice, runs({0: 0.2, 1: 0.2}), "top1")["difference_n"] == 2


def test_no_mean_of_the_lucky() -> None:
    assert math.isnan(spread(pd.DataFrame({"s": [1.0, math.nan]}), ["s"])["s_mean"])
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
    # By hand: slope of least squares, and its standard error times t(0.975, 3).
    x, y = LEVELS["x"], LEVELS["y"]
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    rest = y - y.mean() - slope * (x - x.mean())
    error = math.sqrt((rest**2).sum() / 3 / ((x - x.mean()) ** 2).sum())
    assert line.slope == pytest.approx(slope) and line.slope_ci95 == pytest.approx(3.18245 * error, rel=1e-4)
    assert line.intercept == pytest.approx(y.mean() - slope * x.mean())


def test_fewer_than_five_levels_have_no_line() -> None:
    assert line_through(LEVELS.iloc[:4], "x", "y") is None
    assert line_through(pd.concat([LEVELS.iloc[:4]] * 3), "x", "y") is None, "more seeds are no more levels"


def test_a_flat_line_has_no_correlation() -> None:
    line = line_through(LEVELS.assign(y=0.5), "x", "y")
    assert line is not None and line.slope == pytest.approx(0, abs=1e-12) and math.isnan(line.r)
