"""Properties of an epoch's order, for any records, windows, batches and ranks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.loading.order import EpochOrder, epoch_order, samples_per_rank
from pcr_exp.loading.randomness import Purpose, stream

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=12)
SEEDS = st.integers(-(2**63), 2**63 - 1)


def pairs(order: EpochOrder) -> list[tuple[int, int]]:
    """(record, sample) at every position."""
    return list(zip(order.records[order.reads].tolist(), order.samples.tolist(), strict=True))


def everything(sizes: list[int]) -> list[tuple[int, int]]:
    return [(record, sample) for record, size in enumerate(sizes) for sample in range(size)]


@given(sizes=SIZES, window=st.integers(1, 6), seed=SEEDS, epoch=st.integers(0, 1000), shuffle=st.booleans())
def test_a_single_rank_sees_every_sample_once(
    sizes: list[int], window: int, seed: int, epoch: int, shuffle: bool
) -> None:
    order = epoch_order(sizes, seed=seed, epoch=epoch, shuffle=shuffle, shuffle_records=window)
    assert sorted(pairs(order)) == everything(sizes)
    assert sorted(order.records.tolist()) == list(range(len(sizes))), "every record is read once"
    if not shuffle:
        assert pairs(order) == everything(sizes)


@given(sizes=SIZES, window=st.integers(1, 6), seed=SEEDS, world_size=st.integers(1, 9), shuffle=st.booleans())
def test_ranks_have_equal_counts_and_cover_everything(
    sizes: list[int], window: int, seed: int, world_size: int, shuffle: bool
) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for rank in range(world_size):
        order = epoch_order(
            sizes,
            seed=seed,
            epoch=3,
            shuffle=shuffle,
            shuffle_records=window,
            rank=rank,
            world_size=world_size,
        )
        assert len(order.samples) == samples_per_rank(sum(sizes), world_size)
        seen.update(pairs(order))
    assert sorted(seen) == everything(sizes)
    assert sum(count - 1 for count in seen.values()) < world_size, "fewer than W samples come twice"


@given(
    sizes=SIZES, window=st.integers(1, 6), seed=SEEDS, world_size=st.integers(1, 4), rank=st.integers(0, 3)
)
def test_windows_and_uses_describe_the_stream(
    sizes: list[int], window: int, seed: int, world_size: int, rank: int
) -> None:
    rank = min(rank, world_size - 1)
    order = epoch_order(
        sizes, seed=seed, epoch=0, shuffle=True, shuffle_records=window, rank=rank, world_size=world_size
    )
    assert order.window_reads[-1] == len(order.records)
    assert order.window_samples[-1] == len(order.samples)
    for w in range(len(order.window_reads) - 1):
        positions = slice(order.window_samples[w], order.window_samples[w + 1])
        reads = set(order.reads[positions].tolist())
        assert reads == set(range(order.window_reads[w], order.window_reads[w + 1]))
        assert len(reads) <= window
    stream_of_reads = order.reads.tolist()
    for read in range(len(order.records)):
        positions_of_read = [i for i, other in enumerate(stream_of_reads) if other == read]
        assert order.first_use[read] == positions_of_read[0]
        assert order.last_use[read] == positions_of_read[-1]


def test_orders_differ_by_seed_and_epoch_and_by_nothing_hidden() -> None:
    def order(seed: int, epoch: int) -> list[tuple[int, int]]:
        return pairs(epoch_order([16] * 20, seed=seed, epoch=epoch, shuffle=True, shuffle_records=4))

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in (-1, 0, 1) for epoch in range(3)}) == 9


def test_records_of_different_windows_mix_over_epochs() -> None:
    """In 200 epochs of 6 records in windows of 2, every pair of records shares a window about 200/5 times."""
    together = np.zeros((6, 6), dtype=int)
    for epoch in range(200):
        records = epoch_order([2] * 6, seed=0, epoch=epoch, shuffle=True, shuffle_records=2).records
        for first, second in records.reshape(-1, 2):
            together[first, second] += 1
            together[second, first] += 1
    counts = together[np.triu_indices(6, k=1)]
    assert counts.sum() == 600
    assert counts.min() > 20
    assert counts.max() < 60


def test_an_imagenet_of_records_is_ordered_in_well_under_a_second() -> None:
    order = epoch_order([1024] * 1251, seed=0, epoch=0, shuffle=True, shuffle_records=4)
    assert len(np.unique(order.reads * 1024 + order.samples)) == 1024 * 1251


def test_streams_of_different_purpose_or_key_differ() -> None:
    draws = [
        stream(seed, purpose, *key).integers(2**62)
        for seed in (0, -1, 2**32)
        for purpose in Purpose
        for key in ((), (0,), (0, 0), (1,))
    ]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize(("num_samples", "world_size", "each"), [(10, 1, 10), (10, 3, 4), (2, 5, 1)])
def test_samples_per_rank(num_samples: int, world_size: int, each: int) -> None:
    assert samples_per_rank(num_samples, world_size) == each
