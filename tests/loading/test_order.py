"""Properties of an epoch's order, for any records, lanes, windows, batches and micro-batches."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcr_exp.config.loader import check_lanes, num_slots
from pcr_exp.errors import ConfigError
from pcr_exp.loading.lanes import (
    EpochLanes,
    SampleIndices,
    chunks_in_stored_order,
    deal,
    laid_end_to_end,
    num_held,
    records_per_batch,
)
from pcr_exp.loading.order import EpochOrder, RankShare, SampleSequence, epoch_order, open_share
from pcr_exp.system.randomness import Purpose, stream

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=12)
SEEDS = st.integers(-(2**63), 2**63 - 1)
LANES = st.sampled_from([1, 2, 3, 4, 6, 8])
any_batches = given(
    sizes=SIZES,
    lanes=LANES,
    window=st.integers(1, 4),
    seed=SEEDS,
    batch_size=st.integers(1, 9),
    data=st.data(),
)
Pair = tuple[int, int]


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def pairs(order: EpochOrder) -> list[Pair]:
    """Return (record, sample) at every position."""
    return list(zip(order.records[order.reads].tolist(), order.samples.tolist(), strict=True))


def everything(sizes: list[int]) -> list[Pair]:
    return [(record, sample) for record, size in enumerate(sizes) for sample in range(size)]


def order_of(
    sizes: list[int],
    share: RankShare = RankShare(),  # noqa: B008
    *,
    seed: int = 0,
    epoch: int = 0,
    lanes: int = 8,
    window: int = 1,
    batch_size: int = 4,
) -> EpochOrder:
    laid = EpochLanes(sizes, seed=seed, epoch=epoch, num_lanes=lanes, window=window)
    return epoch_order(
        [SampleSequence.once(laid.slot(slot, share.num_slots)) for slot in share.slots], batch_size=batch_size
    )


@given(sizes=SIZES, lanes=LANES, window=st.integers(1, 6), seed=SEEDS, epoch=st.integers(0, 1000))
def test_one_process_sees_every_sample_and_reads_every_record_once(
    sizes: list[int], lanes: int, window: int, seed: int, epoch: int
) -> None:
    order = order_of(sizes, lanes=lanes, window=window, seed=seed, epoch=epoch)
    assert sorted(pairs(order)) == everything(sizes)
    assert sorted(order.records.tolist()) == list(range(len(sizes)))


@given(sizes=SIZES, count=st.integers(1, 9))
def test_unshuffled_slots_are_runs_of_what_is_stored(sizes: list[int], count: int) -> None:
    seen = []
    for slot in range(count):
        places = laid_end_to_end(chunks_in_stored_order(sizes, slot, count))
        seen.append(list(zip(places.records.tolist(), places.samples.tolist(), strict=True)))
    assert {len(own) for own in seen} == {-(-sum(sizes) // count)}
    assert [pair for own in seen for pair in dict.fromkeys(own)][: sum(sizes)] == everything(sizes) or (
        sum(sizes) < count
    )
    assert {pair for own in seen for pair in own} == set(everything(sizes))


@settings(deadline=None)  # up to 15 orders
@any_batches
def test_the_global_batch_does_not_depend_on_the_number_of_processes(
    sizes: list[int], lanes: int, window: int, seed: int, batch_size: int, data: st.DataObject
) -> None:
    """Each micro-batch holds the same samples in the same order."""
    slots = data.draw(st.sampled_from(divisors(lanes)))

    def batches(world_size: int) -> dict[tuple[int, int], list[Pair]]:
        found = {}
        for rank in range(world_size):
            share = RankShare(rank, world_size, slots)
            order = order_of(sizes, share, lanes=lanes, window=window, seed=seed, batch_size=batch_size)
            for number, (first, end) in enumerate(pairwise(order.batches.tolist())):
                index, part = divmod(number, len(share.slots))
                found[index, share.slots[part]] = pairs(order)[first:end]
        return found

    alone = batches(1)
    for world_size in divisors(slots):
        assert batches(world_size) == alone
    seen = Counter(pair for batch in alone.values() for pair in batch)
    assert sorted(seen) == everything(sizes)
    assert seen.total() - len(seen) < slots, "fewer than S samples come twice"
    each = -(-sum(sizes) // slots)
    assert {
        slot: sum(len(alone[key]) for key in alone if key[1] == slot) for _, slot in alone
    } == dict.fromkeys(range(slots), each)


@given(sizes=SIZES, lanes=LANES, seed=SEEDS, data=st.data())
def test_processes_read_few_records_twice(
    sizes: list[int], lanes: int, seed: int, data: st.DataObject
) -> None:
    world_size = data.draw(st.sampled_from(divisors(lanes)))
    num_reads = sum(
        len(order_of(sizes, RankShare(rank, world_size, world_size), lanes=lanes, seed=seed).records)
        for rank in range(world_size)
    )
    # A process without samples of its own trains on another's.
    idle = max(0, world_size - sum(sizes))
    assert num_reads <= len(sizes) + world_size - 1 + idle


@given(sizes=SIZES, lanes=LANES, seed=SEEDS)
def test_lanes_are_of_equal_length_and_end_with_what_was_cut(sizes: list[int], lanes: int, seed: int) -> None:
    line = stream(seed, Purpose.RECORD_ORDER).permutation(len(sizes)).tolist()
    dealt = deal(sizes, line, lanes)
    cuts = [lane * sum(sizes) // lanes for lane in range(lanes + 1)]
    assert [lane.size for lane in dealt] == [end - start for start, end in pairwise(cuts)]
    used: Counter[int] = Counter()
    for lane in dealt:
        in_tail = 0
        for part in reversed(lane.parts):
            if in_tail < lane.tail:
                in_tail += part.size
            else:
                assert (part.first, part.end) == (0, sizes[part.record]), "a record is dealt whole"
            used[part.record] += part.size
        assert in_tail == lane.tail
    assert used == dict(enumerate(sizes))


@any_batches
def test_reads_and_uses_describe_the_stream(
    sizes: list[int], lanes: int, window: int, seed: int, batch_size: int, data: st.DataObject
) -> None:
    slots = data.draw(st.sampled_from(divisors(lanes)))
    share = RankShare(0, 1, slots)
    order = order_of(sizes, share, lanes=lanes, window=window, seed=seed, batch_size=batch_size)
    reads = order.reads.tolist()
    for read in range(len(order.records)):
        own = [position for position, other in enumerate(reads) if other == read]
        assert (order.first_use[read], order.last_use[read]) == (own[0], own[-1])
    assert np.all(np.diff(order.first_use) > 0), "reads are numbered by their first uses"
    assert order.batches[0] == 0
    assert order.batches[-1] == len(reads)
    sizes_of_batches = np.diff(order.batches).reshape(-1, slots)
    assert np.all(sizes_of_batches == sizes_of_batches[:, :1]), "slots' batches are of equal size"
    assert np.all(sizes_of_batches[:-1] == batch_size)


@given(
    sizes=SIZES | st.builds(lambda size, count, last: [size] * count + [last], *3 * [st.integers(1, 9)]),
    lanes=LANES,
    window=st.integers(1, 4),
    seed=SEEDS,
    data=st.data(),
)
def test_no_more_records_are_in_use_than_the_lanes_hold(
    sizes: list[int], lanes: int, window: int, seed: int, data: st.DataObject
) -> None:
    slots = data.draw(st.sampled_from(divisors(lanes)))
    world_size = data.draw(st.sampled_from(divisors(slots)))
    for rank in range(world_size):
        share = RankShare(rank, world_size, slots)
        order = order_of(sizes, share, lanes=lanes, window=window, seed=seed, batch_size=1)
        bound = num_held(sizes, lanes // world_size, window)
        in_use = np.zeros(len(order.reads) + 1, dtype=int)
        np.add.at(in_use, order.first_use, 1)
        np.add.at(in_use, order.last_use + 1, -1)
        assert in_use.cumsum().max() <= bound


def test_lanes_do_not_all_come_to_their_next_record_at_once() -> None:
    """With 8 lanes of 40 records of 64 samples, one lane changes records about every 64 samples."""
    changes = np.diff(order_of([64] * 320).first_use)[16:-24]
    assert changes.min() >= 56
    assert changes.max() <= 72


def test_a_batch_mixes_as_many_records_as_there_are_lanes() -> None:
    """The numbers equal those in the module's documentation; a single lane with a window of four gives 4."""
    for size, in_lanes in ((64, 9.0), (1024, 8.0)):

        def mixed(lanes: int, window: int, size: int = size) -> float:
            order = order_of([size] * 640, lanes=lanes, window=window)
            return records_per_batch(order.records[order.reads], 64)

        assert mixed(8, 1) == pytest.approx(in_lanes, abs=0.1)
        assert mixed(1, 4) == pytest.approx(4.0, abs=0.1)
        assert mixed(8, 2) > 1.7 * mixed(8, 1) or size == 64


def test_records_of_a_batch_are_counted() -> None:
    assert records_per_batch(np.array([1, 1, 2, 2, 3, 1, 9]), 3) == 2.5


def test_orders_differ_by_seed_and_epoch_and_by_nothing_hidden() -> None:
    def order(seed: int, epoch: int) -> list[Pair]:
        return pairs(order_of([16] * 20, seed=seed, epoch=epoch))

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in (-1, 0, 1) for epoch in range(3)}) == 9


def test_records_of_different_lanes_mix_over_epochs() -> None:
    """In 200 epochs of 6 records in 2 lanes, each pair shares a lane in about 2/5 of the epochs."""
    together = np.zeros((6, 6), dtype=int)
    for epoch in range(200):
        line = stream(0, Purpose.RECORD_ORDER, epoch).permutation(6).tolist()
        for lane in deal([2] * 6, line, 2):
            records = [part.record for part in lane.parts]
            together[np.ix_(records, records)] += 1
    counts = together[np.triu_indices(6, k=1)]
    assert counts.sum() == 200 * 6
    assert counts.min() > 50
    assert counts.max() < 110


def test_samples_of_a_record_are_shuffled() -> None:
    places = EpochLanes([100] * 8, seed=0, epoch=0, num_lanes=8, window=1).slot(0, 8)
    assert sorted(places.samples.tolist()) == list(range(100))
    assert places.samples.tolist() != list(range(100))


def test_an_imagenet_of_records_is_ordered_in_well_under_a_second() -> None:
    order = order_of([1024] * 1251)
    assert len(np.unique(order.records[order.reads] * 1024 + order.samples)) == 1024 * 1251


def test_streams_of_different_purpose_or_key_differ() -> None:
    draws = [
        stream(seed, purpose, *key).integers(2**62)
        for seed in (0, -1, 2**32)
        for purpose in Purpose
        for key in ((), (0,), (0, 0), (1,))
    ]
    assert len(set(draws)) == len(draws)


def test_a_slot_of_nothing_trains_on_another_s_sample() -> None:
    laid = EpochLanes([1, 2], seed=0, epoch=0, num_lanes=8, window=1)
    assert {len(laid.slot(slot, 8).records) for slot in range(8)} == {1}


def test_turns_of_slots() -> None:
    """Two micro-batch indices of five uses take turns in batches of two; their short batches come last."""
    uses = [SampleSequence.once(SampleIndices(np.full(5, record), np.arange(5))) for record in (3, 7)]
    order = epoch_order(uses, batch_size=2)
    assert order.batches.tolist() == [0, 2, 4, 6, 8, 9, 10]
    assert pairs(order) == [*((3, 0), (3, 1), (7, 0), (7, 1), (3, 2), (3, 3), (7, 2), (7, 3), (3, 4), (7, 4))]


@pytest.mark.parametrize(
    ("batch_size", "total", "world_size", "slots"), [(16, None, 1, 1), (16, None, 3, 3), (16, 64, 2, 4)]
)
def test_slots_of_a_global_batch(batch_size: int, total: int | None, world_size: int, slots: int) -> None:
    assert num_slots(batch_size, total, world_size) == slots
    share = open_share(world_size - 1, world_size, batch_size=batch_size, global_batch_size=total)
    assert share.slots[-1] == slots - 1
    assert share.samples_per_slot(100) == -(-100 // slots)


def test_what_cannot_be_shared_equally_is_refused_with_words() -> None:
    with pytest.raises(
        ConfigError, match=r"global_batch_size=48: wanted a multiple of 32 \(batch_size=16 x world_size=2"
    ):
        num_slots(16, 48, 2)
    with pytest.raises(ConfigError, match=r"training\.global_batch_size=0: wanted a multiple"):
        num_slots(16, 0, 1)
    with pytest.raises(ConfigError, match=r"training\.batch_size=0: wanted a whole number, at least 1"):
        num_slots(0, None, 1)
    with pytest.raises(ConfigError, match=r"rank=2: wanted a rank of world_size=2"):
        open_share(2, 2, batch_size=1, global_batch_size=None)
    check_lanes(8, 4, 2)
    message = r"loader\.lanes=8: wanted a multiple of 3, .*world_size=3, 1 per process.*such as 9"
    with pytest.raises(ConfigError, match=message):
        check_lanes(8, 3, 3)
