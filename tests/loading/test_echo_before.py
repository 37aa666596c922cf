"""After an echo stage before augmentation, samples come as often as configured, and reads when needed."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.loading.echo.before import echoed
from pcr_exp.loading.echo.stage import Echo, echo
from pcr_exp.loading.lanes import EpochLanes, chunks_in_stored_order, laid_end_to_end
from pcr_exp.loading.order import EpochOrder, SampleSequence, epoch_order
from pcr_exp.system.randomness import Purpose, stream

SHAPE = {
    "sizes": st.lists(st.integers(1, 9), min_size=1, max_size=8),
    "lanes": st.sampled_from([4, 8]),
    "factor": st.floats(1, 4),
    "buffer": st.integers(1, 50),
    "num_continuations": st.integers(0, 3),
}


def orders(
    sizes: list[int],
    lanes: int,
    factor: float,
    buffer: int,
    num_continuations: int,
    num_slots: int = 1,
    slot: int = 0,
) -> tuple[EpochOrder, EpochOrder]:
    """Return the orders before and after the echo stage."""
    laid = EpochLanes(sizes, seed=1, epoch=2, num_lanes=lanes, window=1)
    fresh = SampleSequence.once(laid.slot(slot, num_slots))
    behind = echoed(fresh, echo(len(fresh.records), factor, buffer, stream(1, Purpose.ECHO, 2, slot)))
    return epoch_order([fresh], 5), epoch_order([behind], 5, range(num_continuations))


def pairs(order: EpochOrder) -> list[tuple[int, int]]:
    """Return (record, sample) of every position."""
    return list(zip(order.records[order.reads].tolist(), order.samples.tolist(), strict=True))


@given(**SHAPE)
def test_every_fresh_sample_comes_as_often_as_the_factor_says(
    sizes: list[int], lanes: int, factor: float, buffer: int, num_continuations: int
) -> None:
    fresh, order = orders(sizes, lanes, factor, buffer, num_continuations)
    counts = Counter(pairs(order))
    assert set(counts) == set(pairs(fresh))
    assert set(counts.values()) <= {int(factor), int(factor) + 1}
    seen: Counter[tuple[int, int]] = Counter()
    for pair, repeat in zip(pairs(order), order.repeats.tolist(), strict=True):
        assert repeat == seen[pair]
        seen[pair] += 1


@given(**SHAPE)
def test_reads_begin_with_the_prefixes_that_they_continue(
    sizes: list[int], lanes: int, factor: float, buffer: int, num_continuations: int
) -> None:
    fresh, order = orders(sizes, lanes, factor, buffer, num_continuations)
    reads = order.reads.tolist()
    for read, (first, last) in enumerate(zip(order.first_use.tolist(), order.last_use.tolist(), strict=True)):
        own = [position for position, other in enumerate(reads) if other == read]
        assert first == own[0]
        assert last >= own[-1]
        base = int(order.bases[read])
        if order.continuations[read] == 0:
            assert base == read
        else:
            assert base < read and order.continuations[base] == order.continuations[read] - 1
            assert order.records[base] == order.records[read]
            assert order.first_use[base] < first and order.last_use[base] >= last
    assert np.all(np.diff(order.first_use) > 0), "reads are numbered by their first uses"
    continuations = np.minimum(order.repeats, num_continuations)
    assert np.array_equal(order.continuations[order.reads], continuations)
    prefixes = order.continuations == 0
    assert sorted(order.records[prefixes]) == sorted(fresh.records), "each record is read once"


@given(sizes=SHAPE["sizes"], lanes=SHAPE["lanes"])
def test_an_echo_of_one_changes_nothing(sizes: list[int], lanes: int) -> None:
    fresh, order = orders(sizes, lanes, 1, 1, 2)
    for name in EpochOrder.__slots__:
        assert np.array_equal(getattr(fresh, name), getattr(order, name)), name


@given(**SHAPE, num_slots=st.sampled_from([2, 4]))
def test_slots_have_equally_many_positions(
    sizes: list[int], lanes: int, factor: float, buffer: int, num_continuations: int, num_slots: int
) -> None:
    counts = {
        len(orders(sizes, lanes, factor, buffer, num_continuations, num_slots, slot)[1].reads)
        for slot in range(num_slots)
    }
    assert len(counts) == 1


def test_a_read_that_continues_is_wanted_by_the_first_repeat_and_not_before() -> None:
    """There are two records of two samples; the second sample of the second record is never repeated."""
    fresh = SampleSequence.once(laid_end_to_end(chunks_in_stored_order([2, 2], 0, 1)))
    uses = np.array([0, 1, 0, 2, 3, 1, 2])
    order = epoch_order([echoed(fresh, Echo(uses, np.array([0, 0, 1, 0, 0, 1, 1])))], 7, repeat_groups=[10])
    assert order.records.tolist() == [0, 0, 1, 1]
    assert order.continuations.tolist() == [0, 1, 0, 1]
    assert order.bases.tolist() == [0, 0, 2, 2]
    assert order.reads.tolist() == [0, 0, 1, 2, 2, 1, 3]
    assert order.first_use.tolist() == [0, 2, 3, 6]
    assert order.last_use.tolist() == [5, 5, 6, 6]
