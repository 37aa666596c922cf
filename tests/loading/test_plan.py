"""Properties of a plan before anything is read, for any records, batches, micro-batches and epoch ranges."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.loading.lanes import EpochLanes, chunks_in_stored_order, laid_end_to_end
from pcr_exp.loading.order import EpochOrder, EpochRange, RankShare, Request, SampleSequence, epoch_order
from pcr_exp.loading.plan import Plan

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def orders_of(sizes: list[int], share: RankShare, batch_size: int) -> Callable[[int], EpochOrder]:
    def order(epoch: int) -> EpochOrder:
        laid = EpochLanes(sizes, seed=3, epoch=epoch, num_lanes=4, window=1)
        return epoch_order(
            [SampleSequence.once(laid.slot(slot, share.num_slots)) for slot in share.slots], batch_size
        )

    return order


@given(
    sizes=SIZES,
    batch_size=st.integers(1, 12),
    num_slots=st.sampled_from([1, 2, 4]),
    first=st.integers(0, 3),
    end=st.none() | st.integers(0, 5),
)
def test_what_is_asked_for_is_opened_in_that_order_and_before_it_is_taken(
    sizes: list[int], batch_size: int, num_slots: int, first: int, end: int | None
) -> None:
    orders = orders_of(sizes, RankShare(0, 1, num_slots), batch_size)
    plan = Plan(
        EpochRange(1, first, 3, end), range(num_slots), orders, lambda epoch, record: 1 + epoch + record
    )
    asked = [request for request in plan.requests() if request is not None]
    opened, in_use = [], set[tuple[int, int]]()
    for batch in plan.batches():
        events = [(position, 0, read) for position, read in batch.opens]
        events += [(position, 1, read) for position, read, _ in batch.takes]
        for _, kind, read in sorted(events):
            if kind == 0:
                record = int(batch.order.records[read])
                opened.append(Request(record, 1 + batch.epoch + record, epoch=batch.epoch))
                in_use.add((batch.epoch, read))
            assert (batch.epoch, read) in in_use, "nothing is taken of what is not there"
        assert (batch.slot, batch.num_parts) == (batch.part, num_slots)
        assert first <= batch.index or batch.epoch > 1
        assert end is None or batch.index < end
    assert opened == asked
    assert len(set(asked)) == len(asked), "no record is read twice in an epoch"


def test_a_record_that_the_next_batch_would_begin_is_not_read() -> None:
    fresh = SampleSequence.once(laid_end_to_end(chunks_in_stored_order([2, 2, 2], 0, 1)))
    order = epoch_order([fresh], 2)
    for first, end, records in ((0, 1, [0]), (1, 2, [1]), (1, 3, [1, 2]), (3, 3, [])):
        plan = Plan(EpochRange(0, first, 1, end), [0], lambda _: order, lambda *_: 5)
        assert [request.record for request in plan.requests() if request] == records


def test_while_a_group_is_not_decided_nothing_is_asked_for() -> None:
    decided: dict[int, int] = {}
    orders = orders_of([4, 4], RankShare(), 4)
    requests = Plan(EpochRange(0, 0, 1), [0], orders, lambda _, record: decided.get(record)).requests()
    assert [next(requests), next(requests)] == [None, None]
    decided |= {0: 2, 1: 5}
    assert {(request.record, request.group) for request in requests if request} == {(0, 2), (1, 5)}
