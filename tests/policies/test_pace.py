"""Groups that cost speed are found by comparison, only beyond chance, and are not excluded for good."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.policies.pace import Pace, Rates

GROUPS = (1, 2, 5, 10)


def seen(pace: Pace, group: int, *rates: float, wait_share: float = 0.0) -> Pace:
    for rate in rates:
        pace.observe(group, rate, wait_share, lowest=1)
    return pace


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=6))
def test_rates_are_a_mean_and_its_error(rates: list[float]) -> None:
    sums = Rates()
    for rate in rates:
        sums = sums.and_also(rate)
    mean = math.fsum(rates) / len(rates)
    variance = math.fsum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
    assert sums.mean == pytest.approx(mean)
    assert sums.squared_error == pytest.approx(variance / len(rates), abs=1e-6)


def test_what_was_long_ago_fades() -> None:
    sums = Rates()
    for rate in [500.0] * 40 + [400.0] * 20:
        sums = sums.and_also(rate)
    assert sums.num == 6
    assert sums.mean == pytest.approx(400, rel=0.02)


def test_a_machine_that_slows_down_is_not_taken_for_decoding() -> None:
    """The lower group was measured while the machine was fast. New measurements clear the higher groups."""
    pace = seen(Pace(0.05), 1, *[500, 501, 499] * 5)
    seen(pace, 5, 400, 401, 399)
    assert pace.fast_enough(GROUPS) == {1, 2}
    seen(pace, 1, *[400, 401, 399, 400] * 2)
    assert pace.fast_enough(GROUPS) == {1, 2}
    seen(pace, 1, *[400, 401, 399, 400] * 2)
    assert pace.fast_enough(GROUPS) == set(GROUPS)


def test_one_rate_says_nothing_of_its_error() -> None:
    assert Rates().and_also(5.0).squared_error == math.inf


def test_a_slower_group_shuts_out_those_above_it() -> None:
    pace = seen(seen(Pace(0.05), 1, 100, 101, 99), 5, 90, 91, 89)
    assert pace.fast_enough(GROUPS) == {1, 2}
    assert pace.too_slow == {5: 90}


@pytest.mark.parametrize("rates", [(96, 97, 95), (60, 90, 120), (80, 80)])
def test_what_may_be_lost_or_is_chance_shuts_out_nothing(rates: tuple[float, ...]) -> None:
    """A loss of less than a twentieth, an uncertain mean, and only two intervals."""
    assert seen(seen(Pace(0.05), 1, 100, 101, 99), 5, *rates).fast_enough(GROUPS) == set(GROUPS)


def test_waiting_sends_it_to_a_lower_group_and_back_if_that_is_no_faster() -> None:
    pace = seen(Pace(0.05), 10, 80, wait_share=0.2)
    assert pace.fast_enough(GROUPS) == {1, 2}
    seen(pace, 2, 80, 81, wait_share=0.2)
    assert pace.fast_enough(GROUPS) == {1}, "nothing says that 2 is slower than 1, or not"
    seen(pace, 1, 81, 80, 82, wait_share=0.2)
    assert pace.fast_enough(GROUPS) == set(GROUPS)


def test_where_the_limit_lies_is_found_by_bisection() -> None:
    groups = range(1, 11)
    pace = seen(seen(Pace(0.05), 1, 100, 101, 99), 10, 70, 71, 69)
    assert max(pace.fast_enough(groups)) == 5
    seen(pace, 5, 100, 99, 101)
    assert max(pace.fast_enough(groups)) == 7
    seen(pace, 7, 70, 71, 69)
    assert max(pace.fast_enough(groups)) == 6
    seen(pace, 6, 100, 99, 101)
    assert pace.fast_enough(groups) == set(range(1, 7))


def test_a_limit_is_forgotten() -> None:
    pace = seen(seen(Pace(0.05), 1, *[100, 101] * 20), 5, 90, 91, 89)
    assert pace.fast_enough(GROUPS) == {1, 2}
    seen(pace, 2, *[100] * 7)
    assert pace.fast_enough(GROUPS) == set(GROUPS)


def test_what_is_known_outlives_a_checkpoint() -> None:
    pace = seen(seen(Pace(0.05), 1, 100, 101, 99), 5, 90, 91, 89)
    restored = Pace(0.05)
    restored.load_state_dict(json.loads(json.dumps(pace.state_dict())))
    assert restored.fast_enough(GROUPS) == {1, 2}
    assert restored.state_dict() == pace.state_dict()
