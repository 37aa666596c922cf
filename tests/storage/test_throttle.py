"""The throttle's schedule, on a fake clock that only `wait` moves."""

import heapq
import itertools
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_disk_head import DiskHead

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import Storage
from pcr_exp.storage.throttle import ReadCancelledError, Throttle, ThrottledStorage, interruptible

MIB = 2**20


class FakeClock:
    """A clock in nanoseconds that advances only during waits; `oversleep_s` makes every wait end late."""

    def __init__(self, oversleep_s: float = 0.0) -> None:
        self.now_ns = 1_000_000_000_000
        self.oversleep_s = oversleep_s

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float, _cancel: threading.Event | None = None) -> None:
        self.now_ns += round((seconds + self.oversleep_s) * 1e9)

    def throttle(self, path: Path | None = None, **limits: float) -> Throttle:
        return Throttle.create(StorageConfig(name="test", **limits), path, clock=self, wait=self.wait)

    def since(self, started_ns: int) -> float:
        return (self.now_ns - started_ns) / 1e9


def request(throttle: Throttle, num_bytes: int) -> None:
    throttle.wait_until(throttle.reserve(num_bytes))


def test_a_single_reader_gets_latency_plus_transfer_each_time() -> None:
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=10, latency_ms=50)
    started = clock()
    for _ in range(20):
        request(throttle, MIB)
    assert clock.since(started) == pytest.approx(20 * (0.05 + 0.1), abs=1e-6)


def test_bytes_that_are_not_there_are_not_waited_for(tmp_path: Path) -> None:
    """A damaged index may claim years of bytes; the reader must learn at once that the file is cut short."""
    (tmp_path / "a").write_bytes(bytes(MIB))
    clock = FakeClock()
    started = clock()
    storage = ThrottledStorage(LocalStorage(tmp_path), clock.throttle(bandwidth_mib_per_s=1))
    assert len(storage.read("a", 0, 2**47)) == MIB
    assert clock.since(started) == 0


def test_latencies_in_flight_overlap_and_transfers_do_not() -> None:
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=10, latency_ms=50)
    started = clock()
    due = [throttle.reserve(MIB) for _ in range(20)]
    assert [(at - started) / 1e9 for at in due] == pytest.approx([0.05 + 0.1 * n for n in range(1, 21)])


def test_unused_bandwidth_is_not_saved_up() -> None:
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=10, requests_per_s=100)
    request(throttle, MIB)
    clock.wait(60)
    started = clock()
    for _ in range(10):
        request(throttle, MIB)
    assert clock.since(started) == pytest.approx(1.0, abs=1e-6)


def test_seeks_of_requests_in_flight_do_not_overlap() -> None:
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=10, seek_ms=50)
    started = clock()
    due = [throttle.reserve(MIB) for _ in range(20)]
    assert [(at - started) / 1e9 for at in due] == pytest.approx([0.15 * n for n in range(1, 21)])


def test_a_lone_reader_pays_latency_and_seek() -> None:
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=10, latency_ms=20, seek_ms=50)
    started = clock()
    for _ in range(10):
        request(throttle, MIB)
    assert clock.since(started) == pytest.approx(10 * (0.02 + 0.05 + 0.1), abs=1e-6)


@given(
    sizes=st.lists(st.lists(st.integers(1000, MIB), max_size=12), min_size=1, max_size=8),
    seek_ms=st.floats(0, 30),
    latency_ms=st.floats(0, 30),
    bandwidth_mib_per_s=st.floats(0.5, 500),
)
def test_every_answer_comes_when_a_simulated_disk_head_gives_it(
    sizes: list[list[int]], seek_ms: float, latency_ms: float, bandwidth_mib_per_s: float
) -> None:
    """Readers send the next request, of any size, as soon as the last is answered."""
    head = DiskHead(bandwidth_mib_per_s * MIB, seek_ms / 1e3, latency_ms / 1e3)
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=bandwidth_mib_per_s, seek_ms=seek_ms, latency_ms=latency_ms)
    wanted, found = head.serve(sizes), answers(clock, throttle, sizes)
    for answered, expected in zip(found, wanted, strict=True):
        assert answered == pytest.approx(expected, abs=1e-6)


def answers(clock: FakeClock, throttle: Throttle, sizes_by_reader: list[list[int]]) -> list[list[float]]:
    """Return the same as DiskHead.serve, from the throttle."""
    started_ns = clock.now_ns
    left = [list(sizes) for sizes in sizes_by_reader]
    answered: list[list[float]] = [[] for _ in left]
    asking = [(started_ns, reader) for reader, sizes in enumerate(left) if sizes]
    heapq.heapify(asking)
    while asking:
        clock.now_ns, reader = heapq.heappop(asking)
        due_ns = throttle.reserve(left[reader].pop(0))
        answered[reader].append((due_ns - started_ns) / 1e9)
        if left[reader]:
            heapq.heappush(asking, (due_ns, reader))
    return answered


def test_requests_per_second() -> None:
    clock = FakeClock()
    throttle = clock.throttle(requests_per_s=40)
    started = clock()
    for _ in range(81):
        request(throttle, 1)
    assert clock.since(started) == pytest.approx(2.0, abs=1e-6)


def test_oversleeping_does_not_add_up() -> None:
    clock = FakeClock(oversleep_s=0.004)
    throttle = clock.throttle(bandwidth_mib_per_s=100)
    started = clock()
    for _ in range(100):
        request(throttle, MIB)
    assert clock.since(started) == pytest.approx(1.004, abs=1e-6)


def test_time_that_the_reader_itself_takes_is_not_forgiven() -> None:
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=100)
    started = clock()
    for _ in range(100):
        request(throttle, MIB)
        clock.wait(0.005)
    assert clock.since(started) == pytest.approx(1.5, abs=1e-6)


def test_oversleeping_is_forgiven_once() -> None:
    clock = FakeClock(oversleep_s=0.004)
    throttle = clock.throttle(latency_ms=50)
    request(throttle, 0)
    assert [throttle.reserve(0) - clock() for _ in range(2)] == [46_000_000, 50_000_000]


def test_time_that_the_inner_storage_takes_is_not_forgiven() -> None:
    clock = FakeClock()
    throttle = clock.throttle(latency_ms=50)
    due_ns = throttle.reserve(0)
    clock.wait(0.2)
    throttle.wait_until(due_ns)
    assert throttle.reserve(0) - clock() == 50_000_000


@given(
    sizes=st.lists(st.integers(0, 3 * MIB), min_size=1, max_size=40),
    gaps_s=st.lists(st.floats(0, 0.3), min_size=40, max_size=40),
    latency_ms=st.floats(0, 100),
    oversleep_s=st.floats(0, 0.05),
)
def test_no_pair_of_deadlines_ever_exceeds_the_bandwidth(
    sizes: list[int], gaps_s: list[float], latency_ms: float, oversleep_s: float
) -> None:
    clock = FakeClock(oversleep_s)
    throttle = clock.throttle(bandwidth_mib_per_s=20, latency_ms=latency_ms)
    previous_due = 0
    for size, gap_s in zip(sizes, gaps_s, strict=False):
        clock.wait(gap_s)
        due = throttle.reserve(size)
        assert due - previous_due >= size / (20 * MIB) * 1e9 - 1
        previous_due = due


def test_a_read_is_charged_for_and_returns_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(MIB))
    clock = FakeClock()
    storage = ThrottledStorage(LocalStorage(tmp_path), clock.throttle(bandwidth_mib_per_s=4, latency_ms=20))
    started = clock()
    assert storage.read("a", 0, MIB) == bytes(MIB)
    assert clock.since(started) == pytest.approx(0.27)
    assert storage.size("a") == MIB
    assert clock.since(started) == pytest.approx(0.29)
    with pytest.raises(StorageError, match="does not exist"):
        storage.read("b", 0, 1)


def test_ranges_of_one_call_each_cost_a_seek_and_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(MIB))
    clock = FakeClock()
    throttle = clock.throttle(bandwidth_mib_per_s=4, latency_ms=20, seek_ms=50)
    started = clock()
    found = ThrottledStorage(LocalStorage(tmp_path), throttle).read_many([("a", 0, MIB)] * 2)
    assert found == [bytes(MIB)] * 2
    assert clock.since(started) == pytest.approx(0.02 + 2 * (0.05 + 0.25))


def test_the_real_read_overlaps_the_wait() -> None:
    clock = FakeClock()

    class SlowInner(Storage):
        def read(self, path: str, offset: int, length: int) -> bytes:  # noqa: ARG002
            clock.wait(0.2)
            return bytes(length)

        def size(self, path: str) -> int:  # noqa: ARG002
            return MIB

    storage = ThrottledStorage(SlowInner(), clock.throttle(bandwidth_mib_per_s=4))
    started = clock()
    storage.read("a", 0, MIB)
    assert clock.since(started) == pytest.approx(0.25)


def test_a_waiting_read_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(MIB))
    throttle = Throttle.create(StorageConfig(name="test", bandwidth_mib_per_s=0.01))
    storage = ThrottledStorage(LocalStorage(tmp_path), throttle)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    started = time.monotonic()
    with interruptible(stop), pytest.raises(ReadCancelledError, match="cancelled"):
        storage.read("a", 0, MIB)
    assert time.monotonic() - started < 5


def test_threads_of_one_throttle_share_its_bandwidth() -> None:
    throttle = Throttle.create(StorageConfig(name="test", bandwidth_mib_per_s=1))
    due: list[int] = []

    def reserve() -> None:
        due.extend([throttle.reserve(MIB) for _ in range(50)])

    threads = [threading.Thread(target=reserve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    due.sort()
    assert [b - a for a, b in itertools.pairwise(due)] == [10**9] * 199
