"""With slow storage, the loader reaches the configured bandwidth and no more."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage

OpenLoader = Callable[..., RecordLoader]
pytestmark = pytest.mark.alone
MIB = 2**20


@pytest.mark.parametrize("num_workers", [1, 4])
def test_the_configured_rate_is_reached_within_two_percent(
    split: Path, open_loader: OpenLoader, num_workers: int
) -> None:
    """This is measured over 2 s of an endless stream, though latency takes much of each read."""
    config = StorageConfig(name="test", bandwidth_mib_per_s=0.4, latency_ms=150)
    storage = CountingStorage(open_storage(str(split), config))
    loader = open_loader(
        num_workers,
        group=10,
        records=RecordSet(storage, "pcr"),
        storage_config=config,
        config=LoaderConfig(num_workers=num_workers, shuffle_records=2),
    )
    stream = loader.batches(0, 0, 1000)
    for _ in range(3):
        next(stream)
    # Other work on the machine disturbs the measurement, so one of several tries must be right.
    rates: list[float] = []
    while not any(rate == pytest.approx(0.4, rel=0.02) for rate in rates):
        assert len(rates) < 4, f"{rates} MiB/s, wanted 0.4 within 2 %"
        rates.append(_rate_mib_per_s(storage, stream, seconds=2))


def _rate_mib_per_s(storage: CountingStorage, stream: Iterator[Batch], seconds: float) -> float:
    """Measure from the end of one read to the end of another; storage should never be idle in between."""
    started, bytes_before = _next_read(storage)
    while time.monotonic() - started < seconds:
        next(stream)
    ended, bytes_after = _next_read(storage)
    return (bytes_after - bytes_before) / MIB / (ended - started)


def _next_read(storage: CountingStorage) -> tuple[float, int]:
    """Return when the next read ends, and the bytes read until then."""
    num_reads = storage.num_reads
    while storage.num_reads == num_reads:
        time.sleep(0.0005)
    return time.monotonic(), storage.bytes_read


def test_the_first_batch_waits_for_its_window_alone(split: Path, open_loader: OpenLoader) -> None:
    """It does not wait for bytes of later batches, however many tasks the pool has room for."""
    config = StorageConfig(name="test", bandwidth_mib_per_s=0.1)
    records = RecordSet(open_storage(str(split), config), "pcr")
    mean_mib = records.index.epoch_bytes(10) / MIB / len(records.index.records)
    loader = open_loader(
        group=10,
        records=records,
        storage_config=config,
        config=LoaderConfig(num_workers=2, lanes=1, shuffle_records=1, prefetch_batches=4),
    )
    started = time.monotonic()
    next(loader.batches(0, 0, 3))
    waited_s = time.monotonic() - started
    assert waited_s < 2.5 * mean_mib / 0.1, "one record is enough for the first batch; eight tasks need six"


def test_what_the_next_epoch_starts_with_is_read_while_one_ends(split: Path, open_loader: OpenLoader) -> None:
    """One record per lane is read. With fewer, storage would idle now, and training at the epoch's start."""
    storage = CountingStorage(LocalStorage(split))
    records = RecordSet(storage, "pcr")
    num_lanes, num_records = 6, len(records.index.records)
    assert num_lanes <= num_records
    loader = open_loader(
        group=2, records=records, config=LoaderConfig(num_workers=0, lanes=num_lanes, shuffle_records=1)
    )
    stream = loader.batches(0, 0, 2)
    before = storage.num_reads  # reads of the index
    for _ in range(loader.num_batches):
        next(stream)
    deadline = time.monotonic() + 10
    while storage.num_reads - before < num_records + num_lanes:
        assert time.monotonic() < deadline, f"{storage.num_reads - before} reads"
        time.sleep(0.01)
