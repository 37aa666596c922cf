"""The storage's settings determine how many reads the loader has in flight."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.read_ahead import Reading, by_calls, reads_in_flight, reads_per_call
from pcr_exp.policies.policy import OneGroup
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage

OpenLoader = Callable[..., RecordLoader]


class HoldingStorage(LocalStorage):
    """Lets record reads end only once `num_awaited` are in flight, or after 5 s."""

    def __init__(self, root: Path, num_awaited: int) -> None:
        super().__init__(root)
        self.num_awaited = num_awaited
        self.most = 0
        self._num_in_flight = 0
        self._lock = threading.Lock()
        self._enough = threading.Event()

    def read(self, path: str, offset: int, length: int) -> bytes:
        if not path.endswith(".pcr"):
            return super().read(path, offset, length)
        with self._lock:
            self._num_in_flight += 1
            self.most = max(self.most, self._num_in_flight)
            if self.most >= self.num_awaited:
                self._enough.set()
        self._enough.wait(5)
        with self._lock:
            self._num_in_flight -= 1
        return super().read(path, offset, length)


@pytest.mark.parametrize(("wanted", "most"), [(6, 6), (2, 2), (None, 4)])
def test_as_many_reads_are_in_flight_as_are_asked_for(
    split: Path, open_loader: OpenLoader, wanted: int | None, most: int
) -> None:
    """There are seven records. Storage of unknown rates gets four reads."""
    storage = HoldingStorage(split, num_awaited=most)
    loader = open_loader(
        records=RecordSet(storage, "pcr"),
        config=LoaderConfig(num_workers=0, shuffle_records=1),
        storage_config=StorageConfig(name="far", reads_in_flight=wanted),
    )
    next(loader.batches(0, 0, 3))
    loader.close()
    assert storage.most == most


def test_the_budget_of_memory_does_not_lower_what_is_asked_for(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcr_exp.loading.read_ahead._MAX_AHEAD_BYTES", 1)
    as_asked = open_loader(storage_config=StorageConfig(name="far", reads_in_flight=40))
    assert as_asked._reading()[:2] == (40, 40)
    sized = open_loader(storage_config=StorageConfig(name="far", bandwidth_mib_per_s=1, latency_ms=4000))
    in_flight, ahead, _ = sized._reading()
    assert in_flight > 40 and ahead == 2


def test_a_policy_that_follows_training_reads_no_further_than_the_next_update(
    open_loader: OpenLoader,
) -> None:
    """Other policies read what the next epoch starts with, a record for each lane, while one ends."""
    config = LoaderConfig(num_workers=0, lanes=6)
    assert open_loader(config=config)._reading().ahead == 6
    assert open_loader(config=config, policy=OneGroup(5, [2]))._reading().ahead == 4


def test_small_reads_far_away_are_done_several_by_a_call(split: Path) -> None:
    far = StorageConfig(name="far", bandwidth_mib_per_s=100, latency_ms=50)
    in_flight = reads_in_flight(far, 14_000)
    assert in_flight == 377
    assert (reads_per_call(in_flight, True), reads_per_call(in_flight, False)) == (16, 1)
    assert (by_calls(in_flight, 16), by_calls(in_flight, 1)) == (565, 377)
    assert (Reading(377, 0, 16).num_threads, Reading(377, 0, 1).num_threads) == (36, 377)
    assert reads_per_call(64, True) == 1
    counted = CountingStorage(open_storage(str(split), StorageConfig(name="fast", bandwidth_mib_per_s=1000)))
    records = RecordSet(counted, "pcr")
    counted.num_reads = counted.bytes_read = 0
    assert counted.reads_many
    together = records.read_prefixes([(0, 2), (3, 5), (0, 1)])
    assert [prefix.group for prefix in together] == [2, 5, 1]
    sizes = [records.index.prefix_bytes(*one) for one in ((0, 2), (3, 5), (0, 1))]
    assert (counted.num_reads, counted.bytes_read) == (3, sum(sizes))
    for one, (record, group) in zip(together, ((0, 2), (3, 5), (0, 1)), strict=True):
        alone = records.read_prefix(record, group)
        assert [one.encoded(i) for i in range(len(one))] == [alone.encoded(i) for i in range(len(alone))]
    assert not CountingStorage(LocalStorage(split)).reads_many


@contextmanager
def fetching(read: Callable[[int], int], num_requests: int, **settings: Any) -> Iterator[Fetcher[int, int]]:
    """Run a fetcher of the requests 0, 1, 2 and so on."""
    fetcher: Fetcher[int, int] = Fetcher(read, iter(range(num_requests)), **settings)
    fetcher.start()
    try:
        yield fetcher
    finally:
        fetcher.close()


def test_a_call_that_fails_is_done_one_by_one() -> None:
    def read(number: int) -> int:
        if number == 20:
            raise StorageError("the twentieth")
        return -number

    calls: list[int] = []

    def read_many(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return [read(number) for number in numbers]

    with fetching(read, 100, num_threads=2, ahead=32, read_many=read_many, at_once=8) as fetcher:
        assert fetcher.take(20) == [-number for number in range(20)]
        with pytest.raises(StorageError, match="the twentieth"):
            fetcher.take(1)
    assert max(calls) == 8


def test_a_thread_begins_no_call_for_a_few() -> None:
    calls: list[int] = []

    def read_many(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return numbers

    with fetching(abs, 400, num_threads=3, ahead=32, read_many=read_many, at_once=8) as fetcher:
        found = [number for _ in range(200) for number in fetcher.take(2)]
    assert found == list(range(400))
    assert calls == 50 * [8], "though room came by two"


def test_what_is_wanted_begins_though_it_fills_no_call() -> None:
    with fetching(abs, 100, num_threads=2, ahead=4, read_many=list, at_once=16, timeout_s=20) as fetcher:
        found = [number for size in (1, 7, 2, 40, 50) for number in fetcher.take(size)]
    assert found == list(range(100))
