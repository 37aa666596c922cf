"""After an echo stage, items have exact counts, one order per seed, and pass a true shuffle buffer."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.related_methods import num_echoed
from pcr_exp.loading.echo.stage import earlier_uses, echo, through_buffer
from pcr_exp.system.randomness import Purpose, stream

FACTORS = st.one_of(st.integers(1, 6).map(float), st.floats(1, 6))


def rng(seed: int = 0, epoch: int = 0, rank: int = 0) -> np.random.Generator:
    return stream(seed, Purpose.ECHO, epoch, rank)


@given(st.integers(1, 60), FACTORS, st.integers(1, 100), st.integers(0, 2**32))
def test_every_item_is_used_as_often_as_the_factor_says(
    num_items: int, factor: float, buffer: int, seed: int
) -> None:
    echoed = echo(num_items, factor, buffer, rng(seed))
    counts = Counter(echoed.items.tolist())
    assert set(counts) == set(range(num_items))
    assert set(counts.values()) <= {int(factor), int(factor) + 1}
    assert len(echoed.items) == counts.total() == num_echoed(num_items, factor)
    assert abs(counts.total() - factor * num_items) <= 0.5


@given(st.integers(1, 60), FACTORS, st.integers(1, 100))
def test_the_order_is_a_function_of_seed_epoch_and_rank(num_items: int, factor: float, buffer: int) -> None:
    first, again = (echo(num_items, factor, buffer, rng(3, 4, 1)) for _ in range(2))
    assert first.items.tolist() == again.items.tolist()
    others = [echo(num_items, factor, buffer, rng(*key)) for key in ((2, 4, 1), (3, 5, 1), (3, 4, 0))]
    assert {len(other.items) for other in others} == {len(first.items)}, "equal counts across ranks"


def test_orders_differ_by_seed_epoch_and_rank() -> None:
    keys = [(seed, epoch, rank) for seed in range(2) for epoch in range(2) for rank in range(2)]
    assert len({tuple(echo(50, 2.5, 20, rng(*key)).items.tolist()) for key in keys}) == len(keys)
    assert len({tuple(echo(50, 2.5, 1, rng(*key)).items.tolist()) for key in keys}) == len(keys)


@given(st.integers(1, 60), FACTORS)
def test_without_a_buffer_repeats_follow_each_other(num_items: int, factor: float) -> None:
    items = echo(num_items, factor, 1, rng()).items
    assert (np.diff(items) >= 0).all()


def naive_buffer(count: int, buffer: int, generator: np.random.Generator) -> list[int]:
    """A textbook shuffle buffer with the same random draws."""
    buffer = min(buffer, count)
    places = list(range(buffer))
    drawn = generator.integers(buffer, size=count - buffer).tolist()
    left = []
    for place, item in zip(drawn, range(buffer, count), strict=True):
        left.append(places[place])
        places[place] = item
    return left, places


@given(st.integers(2, 80), st.integers(2, 100), st.integers(0, 2**32))
def test_the_buffer_is_a_shuffle_buffer(count: int, buffer: int, seed: int) -> None:
    order = through_buffer(count, buffer, rng(seed)).tolist()
    left, kept = naive_buffer(count, buffer, rng(seed))
    assert order[: len(left)] == left
    assert sorted(order[len(left) :]) == sorted(kept), "the tail is flushed"
    assert sorted(order) == list(range(count))
    assert all(item < position + buffer for position, item in enumerate(order))


def test_a_larger_buffer_leaves_fewer_repeats_in_a_batch() -> None:
    """The shares of images whose example occurs earlier in their batch of 128 match an earlier simulation."""

    def duplicates(buffer: int) -> float:
        items = echo(40_000, 2, buffer, rng()).items
        batches = items[: len(items) // 128 * 128].reshape(-1, 128)
        return float(np.mean([128 - len(set(batch.tolist())) for batch in batches])) / 128

    shares = {buffer: duplicates(buffer) for buffer in (1, 128, 1024, 10_240)}
    assert shares[1] == 0.5
    assert shares[128] == pytest.approx(0.185, abs=0.01)
    assert shares[1024] == pytest.approx(0.028, abs=0.005)
    assert shares[10_240] == pytest.approx(0.004, abs=0.003)


@given(st.lists(st.integers(0, 5)))
def test_earlier_uses_are_counted(items: list[int]) -> None:
    uses = earlier_uses(np.array(items, dtype=np.int64)).tolist()
    assert uses == [items[:i].count(item) for i, item in enumerate(items)]


def test_an_imagenet_is_echoed_in_seconds() -> None:
    assert len(echo(1_281_167, 2, 10_240, rng()).items) == 2 * 1_281_167
