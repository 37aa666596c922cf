"""The order behind an echo stage before augmentation: samples as often as asked, reads when needed."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.loading.echo.before import echoed
from pcr_exp.loading.echo.repeats import Echo, echo
from pcr_exp.loading.order import EpochOrder, epoch_order
from pcr_exp.loading.randomness import Purpose, stream

SHAPE = {
    "sizes": st.lists(st.integers(1, 9), min_size=1, max_size=8),
    "window": st.integers(1, 5),
    "factor": st.floats(1, 4),
    "buffer": st.integers(1, 50),
    "num_levels": st.integers(0, 3),
}


def orders(
    sizes: list[int],
    window: int,
    factor: float,
    buffer: int,
    num_levels: int,
    world_size: int = 1,
    rank: int = 0,
) -> tuple[EpochOrder, EpochOrder]:
    order = epoch_order(
        sizes,
        seed=1,
        epoch=2,
        shuffle=True,
        shuffle_records=window,
        world_size=world_size,
        rank=rank,
    )
    rng = stream(1, Purpose.ECHO, 2, rank)
    return order, echoed(order, echo(len(order.samples), factor, buffer, rng), num_levels)


def pairs(order: EpochOrder) -> list[tuple[int, int]]:
    """(record, sample) of every position."""
    return list(zip(order.records[order.reads].tolist(), order.samples.tolist(), strict=True))


@given(**SHAPE)
def test_every_fresh_sample_comes_as_often_as_the_factor_says(
    sizes: list[int], window: int, factor: float, buffer: int, num_levels: int
) -> None:
    fresh, order = orders(sizes, window, factor, buffer, num_levels)
    counts = Counter(pairs(order))
    assert set(counts) == set(pairs(fresh))
    assert set(counts.values()) <= {int(factor), int(factor) + 1}
    seen: Counter[tuple[int, int]] = Counter()
    for pair, repeat in zip(pairs(order), order.repeats.tolist(), strict=True):
        assert repeat == seen[pair]
        seen[pair] += 1


@given(**SHAPE)
def test_reads_are_windows_that_open_before_they_are_used(
    sizes: list[int], window: int, factor: float, buffer: int, num_levels: int
) -> None:
    fresh, order = orders(sizes, window, factor, buffer, num_levels)
    reads = order.reads.tolist()
    for read, (first, last) in enumerate(zip(order.first_use.tolist(), order.last_use.tolist(), strict=True)):
        own = [position for position, other in enumerate(reads) if other == read]
        assert first == own[0]
        assert last >= own[-1]
        base = int(order.bases[read])
        if order.levels[read] == 0:
            assert base == read
        else:
            assert base < read and order.levels[base] == order.levels[read] - 1
            assert order.records[base] == order.records[read]
            assert order.first_use[base] < first and order.last_use[base] >= last
        w = int(np.searchsorted(order.window_reads, read, side="right")) - 1
        assert order.window_samples[w] <= first
    assert order.window_reads[0] == order.window_samples[0] == 0
    assert order.window_reads[-1] == len(order.records)
    assert order.window_samples[-1] == len(reads)
    assert all(a <= b for a, b in pairwise(order.window_samples.tolist()))
    levels = np.minimum(order.repeats, num_levels)
    assert np.array_equal(order.levels[order.reads], levels)
    prefixes = order.levels == 0
    assert order.records[prefixes].tolist() == fresh.records.tolist(), "prefixes are read in the same order"


@given(sizes=SHAPE["sizes"], window=SHAPE["window"])
def test_an_echo_of_one_changes_nothing(sizes: list[int], window: int) -> None:
    fresh, order = orders(sizes, window, 1, 1, 2)
    for name in EpochOrder.__slots__:
        assert np.array_equal(getattr(fresh, name), getattr(order, name)), name


@given(**SHAPE, world_size=st.integers(2, 4))
def test_ranks_have_equally_many_positions(
    sizes: list[int], window: int, factor: float, buffer: int, num_levels: int, world_size: int
) -> None:
    counts = {
        len(orders(sizes, window, factor, buffer, num_levels, world_size, rank)[1].reads)
        for rank in range(world_size)
    }
    assert len(counts) == 1


def test_a_read_that_continues_is_wanted_by_the_first_repeat_and_not_before() -> None:
    """Two records of two samples; the second sample of record b is never repeated."""
    fresh = epoch_order([2, 2], seed=0, epoch=0, shuffle=False, shuffle_records=1)
    uses = np.array([0, 1, 0, 2, 3, 1, 2])
    order = echoed(fresh, Echo(uses, np.array([0, 0, 1, 0, 0, 1, 1])), num_levels=1)
    assert order.records.tolist() == [0, 0, 1, 1]
    assert order.levels.tolist() == [0, 1, 0, 1]
    assert order.bases.tolist() == [0, 0, 2, 2]
    assert order.reads.tolist() == [0, 0, 1, 2, 2, 1, 3]
    assert order.window_samples.tolist() == [0, 2, 3, 6, 7]
    assert order.last_use.tolist() == [5, 5, 6, 6]
