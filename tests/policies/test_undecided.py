"""Changing groups: nothing is read before a policy has decided, bytes stay exact, and nothing hangs."""

from collections.abc import Callable, Iterator

import pytest
import torch
from golden_batches import assert_same

from pcr_exp.config.loader import LoaderConfig
from pcr_exp.errors import LoaderError, RecordError
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.policies.policy import Decision, OneGroup
from pcr_exp.policies.schedule import MixtureScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage

OpenLoader = Callable[..., RecordLoader]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_next_epoch_is_read_at_what_is_decided_at_the_end_of_this_one(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage, num_workers: int
) -> None:
    policy = OneGroup(5, [2], undecided_from=1)
    batches = open_loader(num_workers, policy=policy).batches(0, 0, 3)
    first = [next(batches) for _ in range(9)]
    assert [batch.epoch for batch in first] == [0] * 9
    assert storage.bytes_read == records.index.epoch_bytes(5), "nothing of the next epoch was read"
    policy.choose(Decision(2, "given"), undecided_from=3)
    rest = list(batches)
    assert [batch.epoch for batch in rest] == [1] * 9 + [2] * 9
    assert {batch.group for batch in rest} == {2}
    assert sum(batch.record_bytes for batch in rest) == 2 * records.index.epoch_bytes(2)
    assert sum(batch.full_bytes for batch in rest) == 2 * records.index.epoch_bytes(10)
    assert storage.bytes_read == records.index.epoch_bytes(5) + 2 * records.index.epoch_bytes(2)


def test_a_group_changes_between_records_of_one_stream(
    open_loader: OpenLoader, records: RecordSet, storage: CountingStorage
) -> None:
    """Records in flight keep their group, later ones get the new group, and bytes stay exact."""
    policy = OneGroup(10, [1])
    config = LoaderConfig(num_workers=0, shuffle_records=1, records_ahead=1)
    batches = open_loader(policy=policy, config=config, batch_size=4).batches(0, 0, 1)
    seen = [next(batches)]
    policy.choose(Decision(1, "given"))
    seen += batches
    groups = [batch.group for batch in seen]
    assert groups == sorted(groups, reverse=True)
    assert set(groups) == {1, 10}
    assert sum(batch.record_bytes for batch in seen) == storage.bytes_read
    assert records.index.epoch_bytes(1) < storage.bytes_read < records.index.epoch_bytes(10)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_mixture_is_the_same_at_any_number_of_workers_and_its_bytes_are_exact(
    open_loader: OpenLoader, records: RecordSet, num_workers: int
) -> None:
    policy = MixtureScan(5, [1, 2, 5, 10], [2, 1, 1], seed=3)
    inline = list(open_loader(0, policy=policy).batches(0, 0, 2))
    batches = list(open_loader(num_workers, policy=policy).batches(0, 0, 2))
    for mine, his in zip(batches, inline, strict=True):
        assert torch.equal(mine.images, his.images)
        assert (mine.group, mine.record_bytes) == (his.group, his.record_bytes)
    index = records.index
    drawn = [
        index.prefix_bytes(r, policy.group(e, r) or 0) for e in range(2) for r in range(len(index.records))
    ]
    assert sum(batch.record_bytes for batch in batches) == sum(drawn)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_from_the_middle_draws_what_the_whole_drew(
    open_loader: OpenLoader, num_workers: int
) -> None:
    policy = MixtureScan(5, [1, 2, 5, 10], [1, 1, 1], seed=3)
    whole = list(open_loader(policy=policy).batches(0, 0, 2))
    for first in (1, 4, 8, 9):
        assert_same(open_loader(num_workers, policy=policy).batches(0, first, 2), whole[first:])


@pytest.mark.parametrize("num_batches", [1, 3, 9, 20])
def test_the_first_batches_of_an_epoch_are_those_of_the_whole_and_cost_only_their_records(
    open_loader: OpenLoader, storage: CountingStorage, num_batches: int
) -> None:
    whole = list(open_loader().batches(1, 0, 2))
    before = storage.bytes_read
    some = list(open_loader().batches(1, 0, 2, num_batches))
    assert len(some) == min(9, num_batches)
    assert all(torch.equal(a.images, b.images) for a, b in zip(some, whole, strict=False))
    # A window of 3 records of 16 images, and 12 images a batch.
    read = storage.bytes_read - before
    assert read == sum(batch.record_bytes for batch in some)
    assert (read < before) == (num_batches < 9)


def test_candidates_that_the_records_lack_are_refused_by_name(open_loader: OpenLoader) -> None:
    with pytest.raises(RecordError, match="scan group 11 was asked for, but the pcr records of astronaut/"):
        open_loader(policy=OneGroup(1, [5, 11]))


def unknown_after(count: int) -> Iterator[int | None]:
    yield from range(count)
    while True:
        yield None


def test_waiting_for_what_nobody_decides_is_an_error_and_no_hang() -> None:
    fetcher: Fetcher[int, int] = Fetcher(lambda i: i, unknown_after(4), num_threads=3, ahead=9)
    fetcher.start()
    try:
        assert fetcher.take(4) == [0, 1, 2, 3]
        with pytest.raises(LoaderError, match="before the scan policy had decided"):
            fetcher.take(1)
    finally:
        fetcher.close()


def test_what_was_unknown_is_asked_again_on_resuming_and_on_wanting() -> None:
    known = [0, 1]

    def requests() -> Iterator[int | None]:
        for i in range(6):
            while i not in known:
                yield None
            yield i

    fetcher: Fetcher[int, int] = Fetcher(lambda i: i, requests(), num_threads=2, ahead=9)
    fetcher.start()
    try:
        assert fetcher.take(2) == [0, 1]
        assert not fetcher.want(2)
        known += [2, 3]
        assert fetcher.take(2) == [2, 3]
        fetcher.pause()
        known += [4, 5]
        fetcher.resume()
        assert fetcher.take(2) == [4, 5]
    finally:
        fetcher.close()
