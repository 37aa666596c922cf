"""Streams that are closed, dropped, interrupted or paused leave nothing behind."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import LoaderError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")
OpenLoader = Callable[..., RecordLoader]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_closing_in_mid_epoch_is_quick(split: Path, open_loader: OpenLoader, num_workers: int) -> None:
    throttle = Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=0.05))
    records = RecordSet(LocalStorage(split), "pcr")
    records.storage = ThrottledStorage(records.storage, throttle)
    loader = open_loader(num_workers, group=10, records=records)
    stream = loader.batches(0, 0, 100)
    next(stream)
    started = time.monotonic()
    loader.close()
    assert time.monotonic() - started < 2
    assert list(stream) == []


class InterruptingStorage(ThrottledStorage):
    """Sends Ctrl-C shortly after the first read begins, when workers are forked and training waits."""

    def __init__(self, inner: LocalStorage, throttle: Throttle) -> None:
        super().__init__(inner, throttle)
        self._once = threading.Lock()  # several threads read

    def read(self, path: str, offset: int, length: int) -> bytes:
        if self._once.acquire(blocking=False):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return super().read(path, offset, length)


def test_an_interrupt_while_waiting_leaves_nothing_behind(split: Path, open_loader: OpenLoader) -> None:
    throttle = Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=0.001))
    records = RecordSet(LocalStorage(split), "pcr")
    records.storage = InterruptingStorage(records.storage, throttle)
    stream = open_loader(1, records=records).batches(0, 0, 1)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert time.monotonic() - started < 3, "the first read would take 40 s"
    assert list(stream) == []


def test_a_stream_that_is_dropped_ends(open_loader: OpenLoader) -> None:
    for num_workers in (0, 1):
        loader = open_loader(num_workers)
        next(loader.batches(0, 0, 100))
        loader._stream = None


def test_the_loader_is_a_context(open_loader: OpenLoader) -> None:
    with open_loader(1) as loader:
        stream = loader.batches(0, 0, 100)
        next(stream)
    assert list(stream) == []
    loader.pause()
    loader.resume()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_pause_reads_nothing(open_loader: OpenLoader, storage: CountingStorage, num_workers: int) -> None:
    expected = [batch.labels.tolist() for batch in open_loader().batches(0, 0, 3)]
    loader = open_loader(num_workers)
    stream = loader.batches(0, 0, 3)
    received = [next(stream).labels.tolist() for _ in range(4)]
    loader.pause()
    num_reads = storage.num_reads
    time.sleep(0.1)
    assert storage.num_reads == num_reads
    loader.resume()
    assert received + [batch.labels.tolist() for batch in stream] == expected


def test_asking_a_paused_loader_for_more_than_it_has_is_an_error_not_a_hang(open_loader: OpenLoader) -> None:
    loader = open_loader(1)
    stream = loader.batches(0, 0, 100)
    next(stream)
    loader.pause()
    with pytest.raises(LoaderError, match=r"paused: call resume\(\)"):
        for _ in stream:
            pass


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_for_a_gpu_are_pinned_in_order_and_slabs_are_free_at_once(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    """A thread copies batches to page-locked memory; here to ordinary memory, as there may be no GPU."""
    expected = [batch.images for batch in open_loader().batches(0, 0, 2)]
    pinned_by = []

    def pin(batch: Batch) -> Batch:
        pinned_by.append(threading.current_thread().name)
        return replace(batch, images=batch.images.clone())

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Batch, "pin_memory", pin)
    loader = open_loader(num_workers)
    found = []
    for batch in loader.batches(0, 0, 2):
        found.append(batch.images)
        time.sleep(0.02)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert len(pinned_by) == len(expected)
    assert any(name.startswith("pcr-exp-pin") for name in pinned_by) == (num_workers > 0)


def test_batches_do_not_pile_up_in_page_locked_memory(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer is slower than the loader."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: replace(batch, images=batch.images.clone()))
    stream = open_loader(2).batches(0, 0, 100)
    for _ in range(20):
        next(stream)
        time.sleep(0.03)
        assert len(stream._pinned) + len(stream._submitted) <= stream._pool.capacity
    stream.close()
