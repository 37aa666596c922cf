"""An order computed as it is used equals the one computed whole, and takes bounded memory."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.loading.lanes import EpochLanes
from pcr_exp.loading.order import EpochOrder, SampleSequence, StreamedOrder, epoch_order
from pcr_exp.system import MIB


def both(
    lanes: EpochLanes, slots: range, num_slots: int, num_records: int, batch_size: int
) -> tuple[EpochOrder, StreamedOrder]:
    whole = epoch_order([SampleSequence.once(lanes.slot(slot, num_slots)) for slot in slots], batch_size)
    chunks = [partial(lanes.chunks, slot, num_slots) for slot in slots]
    return whole, StreamedOrder(chunks, num_records, batch_size)


def assert_equal(whole: EpochOrder, streamed: StreamedOrder, batches: list[int]) -> None:
    for name in ("records", "first_use", "last_use"):
        assert np.array_equal(getattr(whole, name), getattr(streamed, name)), name
    assert whole.num_batches == streamed.num_batches
    starts = range(whole.num_batches + 1)
    assert [whole.batch_start(k) for k in starts] == [streamed.batch_start(k) for k in starts]
    for batch in batches:
        ends = whole.batch_start(batch), whole.batch_start(batch + 1)
        for wanted, found in zip(whole.uses(*ends), streamed.uses(*ends), strict=True):
            assert np.array_equal(wanted, found)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    num_lanes=st.sampled_from([1, 2, 4, 8]),
    window=st.integers(1, 4),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_the_order_that_is_made_whole(
    sizes: list[int], num_lanes: int, window: int, batch_size: int, seed: int, data: st.DataObject
) -> None:
    lanes = EpochLanes(sizes, seed=seed, epoch=1, num_lanes=num_lanes, window=window)
    num_slots = data.draw(st.sampled_from([count for count in (1, 2, 4, 8) if num_lanes % count == 0]))
    first = data.draw(st.integers(0, num_slots - 1))
    whole, streamed = both(lanes, range(first, num_slots), num_slots, len(sizes), batch_size)
    jumps = data.draw(st.lists(st.integers(0, whole.num_batches - 1), max_size=5))
    assert_equal(whole, streamed, [*range(whole.num_batches), *jumps])


def test_where_slots_have_more_than_is_laid_out_at_once() -> None:
    sizes = [500] * 80
    lanes = EpochLanes(sizes, seed=0, epoch=0, num_lanes=8, window=2)
    whole, streamed = both(lanes, range(2, 4), 4, len(sizes), batch_size=7)
    assert_equal(whole, streamed, [*range(whole.num_batches), 100])


def test_lanes_lie_side_by_side_by_time() -> None:
    """The sequence equals the original definition over whole epochs, which all earlier runs used."""
    sizes, num_lanes = [50] * 41 + [17], 8
    lanes = EpochLanes(sizes, seed=3, epoch=2, num_lanes=num_lanes, window=1)
    own = [lanes.slot(lane, num_lanes) for lane in range(num_lanes)]
    lane_sizes = lanes._lane_sizes
    tail, step = max(lane.tail for lane in lanes._lanes), sum(sizes) / len(sizes)
    times = []
    for k, size in enumerate(lane_sizes):
        positions = np.arange(size)
        lead = np.clip(np.minimum(positions, size - tail - positions), 0, step)
        times.append(lead * (-k / num_lanes) + positions)
    turns = np.argsort(np.concatenate(times), kind="stable")
    for column, found in zip(zip(*own, strict=True), lanes.slot(0, 1), strict=True):
        parts = [values[:size] for values, size in zip(column, lane_sizes, strict=True)]
        assert np.array_equal(np.concatenate(parts)[turns], found)


def test_memory_holds_a_few_windows_however_long_the_epoch_is() -> None:
    def peak_mib(num_records: int) -> float:
        sizes = [1024] * num_records
        tracemalloc.start()
        try:
            lanes = EpochLanes(sizes, seed=0, epoch=0, num_lanes=8, window=1)
            order = StreamedOrder([partial(lanes.chunks, 0, 1)], num_records, 256)
            for batch in range(0, order.num_batches, 16):
                order.uses(order.batch_start(batch), order.batch_start(batch + 1))
            return tracemalloc.get_traced_memory()[1] / MIB
        finally:
            tracemalloc.stop()

    assert peak_mib(800) < peak_mib(100) + 1, "made whole, the seven times as many would take 45 MiB more"
