"""Clocks on a time that the test advances."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.training.clocks import NAMES, ClockName, Clocks, StopAfter


class FakeTime:
    """A time that only the test advances, and a device that needs `pending_s` to finish."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pending_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def synchronize(self) -> None:
        self.now_s += self.pending_s
        self.pending_s = 0.0


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def test_each_second_goes_to_the_clock_that_ran(time: FakeTime) -> None:
    clocks = Clocks(now=time)
    clocks.switch("wait")
    time.now_s += 3
    clocks.switch("train")
    time.now_s += 5
    clocks.switch("eval")
    time.now_s += 7
    clocks.switch("other")
    time.now_s += 11
    clocks.switch("train")
    time.now_s += 13
    assert clocks.read() == {
        "train_s": 18,
        "wait_s": 3,
        "probe_s": 0,
        "eval_s": 7,
        "other_s": 11,
        "wall_s": 39,
    }
    assert clocks.current == "train"


def test_new_clocks_stand_still_until_the_first_switch(time: FakeTime) -> None:
    clocks = Clocks(now=time)
    time.now_s += 100
    assert set(clocks.read().values()) == {0}
    clocks.switch("train")
    time.now_s += 1
    assert clocks.read()["wall_s"] == 1


def test_work_on_the_device_is_paid_on_the_clock_that_launched_it(time: FakeTime) -> None:
    clocks = Clocks(time.synchronize, time)
    clocks.switch("train")
    time.pending_s = 4.0
    clocks.switch("wait")
    time.now_s += 1
    assert clocks.read() == {"train_s": 4, "wait_s": 1, "probe_s": 0, "eval_s": 0, "other_s": 0, "wall_s": 5}


def test_switching_to_the_same_clock_changes_nothing(time: FakeTime) -> None:
    clocks = Clocks(now=time)
    clocks.switch("train")
    time.now_s += 2
    clocks.switch("train")
    time.now_s += 2
    assert clocks.read()["train_s"] == 4


def test_a_pause_stops_all_clocks(time: FakeTime) -> None:
    clocks = Clocks(time.synchronize, time)
    clocks.switch("train")
    time.pending_s = 2.0
    clocks.pause()
    time.now_s += 100
    clocks.pause()
    assert clocks.read() == {"train_s": 2, "wait_s": 0, "probe_s": 0, "eval_s": 0, "other_s": 0, "wall_s": 2}
    clocks.switch("train")
    time.now_s += 1
    assert clocks.read()["wall_s"] == 3


def test_a_restored_clock_goes_on_where_it_was_saved(time: FakeTime) -> None:
    clocks = Clocks(now=time)
    clocks.switch("wait")
    time.now_s += 3
    state = clocks.state_dict()
    time.now_s += 50  # lost with the killed process
    resumed = Clocks(now=time)
    resumed.load_state_dict(state)
    time.now_s += 50
    resumed.switch("train")
    time.now_s += 4
    assert resumed.read() == {"train_s": 4, "wait_s": 3, "probe_s": 0, "eval_s": 0, "other_s": 0, "wall_s": 7}


@given(st.lists(st.tuples(st.sampled_from([*NAMES, None]), st.floats(0, 1e4)), max_size=40))
def test_the_split_adds_up_to_the_wall(moves: list[tuple[ClockName | None, float]]) -> None:
    time = FakeTime()
    clocks = Clocks(now=time)
    for name, seconds in moves:
        if name is None:
            clocks.pause()
        else:
            clocks.switch(name)
        time.now_s += seconds
        reading = clocks.read()
        wall_s = reading.pop("wall_s")
        assert sum(reading.values()) == pytest.approx(wall_s, rel=1e-9, abs=1e-6)
    assert wall_s <= time.now_s - 1000 + 1e-6 if moves else True


def test_seconds_are_counted_from_the_first_time_that_is_asked() -> None:
    stop_after = StopAfter(60.0)
    assert [stop_after.passed(seconds) for seconds in (500.0, 559.9, 560.0, 700.0)] == [
        False,
        False,
        True,
        True,
    ]
    forever = StopAfter(None)
    assert not any(forever.passed(seconds) for seconds in (0.0, 1e9))
