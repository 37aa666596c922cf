"""Read-ahead: order, budget, pausing, failures and closing."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pcr_exp.config.loader import ChangingStorageConfig, StorageConfig
from pcr_exp.errors import LoaderError, StorageError
from pcr_exp.loading import fetch
from pcr_exp.loading.fetch import Fetcher
from pcr_exp.loading.read_ahead import longest_read_s, reads_ahead, reads_in_flight
from pcr_exp.storage.throttle import Throttle

MIB = 2**20
OpenFetcher = Callable[..., Fetcher[int, int]]


@pytest.fixture
def open_fetcher() -> Iterator[OpenFetcher]:
    opened: list[Fetcher[int, int]] = []

    def open_with(
        read: Callable[[int], int], requests: Iterator[int], num_threads: int = 4, ahead: int = 3
    ) -> Fetcher[int, int]:
        opened.append(Fetcher(read, requests, num_threads=num_threads, ahead=ahead))
        opened[-1].start()
        return opened[-1]

    yield open_with
    for fetcher in opened:
        fetcher.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("pcr-exp-fetch")]


def settle(condition: Callable[[], bool]) -> bool:
    """Wait up to 5 s for the condition, and return whether it still holds 50 ms later."""
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(0.05)
    return condition()


def test_results_come_in_order_however_long_each_takes(open_fetcher: OpenFetcher) -> None:
    def read(i: int) -> int:
        time.sleep(0.001 * (7 * i % 5))
        return i * i

    fetcher = open_fetcher(read, iter(range(40)))
    assert [result for _ in range(10) for result in fetcher.take(4)] == [i * i for i in range(40)]


def test_reading_stays_within_its_budget_of_what_is_wanted(open_fetcher: OpenFetcher) -> None:
    begun: list[int] = []

    def read(i: int) -> int:
        begun.append(i)
        return i

    fetcher = open_fetcher(read, iter(range(1000)), ahead=3)
    assert settle(lambda: len(begun) == 3)
    assert fetcher.want(5) in (True, False)
    assert settle(lambda: len(begun) == 8)
    assert fetcher.want(5)
    assert fetcher.take(5) == [0, 1, 2, 3, 4]
    assert settle(lambda: len(begun) == 8), "what was wanted was counted already"
    assert fetcher.take(1) == [5]
    assert settle(lambda: len(begun) == 9)


def test_a_pause_ends_reads_and_lets_none_begin(open_fetcher: OpenFetcher) -> None:
    in_flight: list[int] = []
    done: list[int] = []

    def read(i: int) -> int:
        in_flight.append(i)
        time.sleep(0.05)
        in_flight.remove(i)
        done.append(i)
        return i

    fetcher = open_fetcher(read, iter(range(100)), ahead=50)
    assert fetcher.take(1) == [0]
    fetcher.pause()
    count = len(done)
    assert not in_flight
    assert settle(lambda: len(done) == count)
    fetcher.take(count - 1)
    with pytest.raises(LoaderError, match="paused"):
        fetcher.take(1)
    fetcher.resume()
    assert fetcher.take(20) == list(range(count, count + 20))


def test_a_failed_read_is_raised_in_its_place(open_fetcher: OpenFetcher) -> None:
    def read(i: int) -> int:
        if i == 5:
            raise StorageError("record 5 is lost")
        return i

    fetcher = open_fetcher(read, iter(range(100)))
    assert fetcher.take(5) == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(StorageError, match="record 5 is lost"):
            fetcher.take(3)


def test_a_failing_policy_is_raised_too(open_fetcher: OpenFetcher) -> None:
    def requests() -> Iterator[int]:
        yield from range(5)
        raise ZeroDivisionError("in the policy")

    fetcher = open_fetcher(lambda i: i, requests())
    assert fetcher.take(5) == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError, match="in the policy"):
        fetcher.take(1)


def test_closing_cuts_throttled_waits_short_and_wakes_whoever_waits(open_fetcher: OpenFetcher) -> None:
    throttle = Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=0.01))

    def read(i: int) -> int:
        throttle.wait_until(throttle.reserve(MIB))
        return i

    fetcher = open_fetcher(read, iter(range(100)))
    closing = threading.Timer(0.1, fetcher.close)
    closing.start()
    started = time.monotonic()
    with pytest.raises(LoaderError, match="closed"):
        fetcher.take(1)
    closing.join()
    assert time.monotonic() - started < 3


def test_reads_that_hang_are_told_to_whoever_waits_or_pauses() -> None:
    release = threading.Event()
    fetcher = Fetcher(
        lambda i: i if i < 2 else release.wait(10),
        iter(range(100)),
        num_threads=4,
        ahead=8,
        timeout_s=0.5,
        describe=lambda i: f"number {i}",
    )
    fetcher.start()
    assert fetcher.take(2) == [0, 1]
    for attempt in (lambda: fetcher.take(3), fetcher.pause):
        with pytest.raises(LoaderError, match=r"no read has ended for 0\.5 s, .* waits for number 2\."):
            attempt()
    release.set()
    fetcher.close()


def test_closing_leaves_many_hanging_reads_behind_after_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_JOIN_S", 0.2)
    release = threading.Event()
    fetcher = Fetcher(lambda _: release.wait(10), iter(range(100)), num_threads=50, ahead=50)
    fetcher.start()
    assert settle(lambda: len(fetcher._in_flight) == 50)
    started = time.monotonic()
    fetcher.close()
    assert time.monotonic() - started < 2
    release.set()
    fetcher.close()


@pytest.mark.parametrize(
    ("bandwidth", "latency_ms", "requests", "seconds"),
    [(2, 0, None, 1.5), (2, 100, 1, 1.6), (None, 100, 0.5, 2.1), (None, 5, None, 0.005)],
)
def test_the_longest_read_follows_from_the_configured_rates(
    bandwidth: float | None, latency_ms: float, requests: float | None, seconds: float
) -> None:
    config = StorageConfig(
        name="test", bandwidth_mib_per_s=bandwidth, latency_ms=latency_ms, requests_per_s=requests
    )
    assert longest_read_s(config, 3 * MIB) == pytest.approx(seconds)
    assert longest_read_s(None, 3 * MIB) == 0


def test_the_longest_read_seeks_first() -> None:
    disk = StorageConfig(name="disk", bandwidth_mib_per_s=2, seek_ms=250, latency_ms=100)
    assert longest_read_s(disk, 3 * MIB) == pytest.approx(0.25 + 1.5 + 0.1)
    assert longest_read_s(StorageConfig(name="disk", seek_ms=250), 3 * MIB) == 0.25


def test_the_longest_read_comes_when_storage_is_slowest() -> None:
    limits: dict[str, Any] = {"bandwidth_mib_per_s": 2, "seek_ms": 250, "latency_ms": 100}
    busy = ChangingStorageConfig(name="busy", changes_s=[5, 9], shares=[0.125, 0.5], **limits)
    assert longest_read_s(busy, 3 * MIB) == pytest.approx(0.25 + 8 * 1.5 + 0.1)
    free = ChangingStorageConfig(name="free", **limits)
    assert longest_read_s(free, 3 * MIB) == pytest.approx(0.25 + 1.5 + 0.1)


@pytest.mark.parametrize(
    ("disk", "in_flight"),
    [
        ({"bandwidth_mib_per_s": 150, "seek_ms": 8}, 2),  # no latency to hide: more would queue at the head
        ({"seek_ms": 8}, 2),
        # A read takes 10 ms, seek and transfer: 100 reads a second, so 5 are within the latency of 50 ms.
        ({"bandwidth_mib_per_s": 100, "seek_ms": 5, "latency_ms": 50}, 7),
        ({"bandwidth_mib_per_s": 100, "seek_ms": 5, "latency_ms": 50, "requests_per_s": 20}, 3),
        ({"reads_in_flight": 64}, 64),
        ({"bandwidth_mib_per_s": 100, "latency_ms": 50, "reads_in_flight": 1}, 1),
    ],
)
def test_only_latency_that_overlaps_wants_reads_in_flight(disk: dict[str, float], in_flight: int) -> None:
    assert reads_in_flight(StorageConfig(name="disk", **disk), MIB / 2) == in_flight


@pytest.mark.parametrize(
    ("bandwidth", "requests", "latency_ms", "read_bytes", "in_flight"),
    [
        (400, None, 5, MIB, 4),  # 2 MiB in flight are two reads
        (400, None, 5, 100 * MIB, 3),
        (12, None, 40, MIB / 10, 7),
        (400, None, 0, MIB, 2),
        (100, None, 50, 20 * 1024, 258),  # small records: 5 MiB in flight are many
        (400, None, 100, 1000, 512),
        (400, 30, 100, MIB, 5),
        (None, 30, 100, MIB, 5),
        (None, None, 100, MIB, 4),
    ],
)
def test_reads_in_flight_follow_from_littles_law(
    bandwidth: float | None, requests: float | None, latency_ms: float, read_bytes: float, in_flight: int
) -> None:
    config = StorageConfig(
        name="test", bandwidth_mib_per_s=bandwidth, requests_per_s=requests, latency_ms=latency_ms
    )
    assert reads_in_flight(config, read_bytes) == in_flight


def test_reads_ahead_hold_a_window_and_all_in_flight_within_a_gibibyte() -> None:
    assert reads_in_flight(None, MIB) == 4
    assert reads_ahead(2, at_once=1, at_start=1, mean_read_bytes=MIB) == 4
    assert reads_ahead(2, at_once=8, at_start=8, mean_read_bytes=MIB) == 8
    assert reads_ahead(9, at_once=4, at_start=4, mean_read_bytes=MIB) == 9
    assert reads_ahead(9, at_once=4, at_start=4, mean_read_bytes=200 * MIB) == 5
    assert reads_ahead(9, at_once=4, at_start=4, mean_read_bytes=2000 * MIB) == 2


def test_reads_ahead_hold_what_an_epoch_starts_with_where_that_is_little() -> None:
    assert reads_ahead(2, at_once=1, at_start=8, mean_read_bytes=MIB) == 8
    assert reads_ahead(2, at_once=1, at_start=8, mean_read_bytes=10 * MIB) == 6  # at most 64 MiB
    assert reads_ahead(2, at_once=1, at_start=8, mean_read_bytes=110 * MIB) == 4
