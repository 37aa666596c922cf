"""Failures give clear errors and leave nothing behind."""

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.errors import ConfigError, LoaderError, RecordError, StorageError
from pcr_exp.images.codec import Buffer, Source
from pcr_exp.loading import stream as stream_module
from pcr_exp.loading import workers
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.order import Request
from pcr_exp.loading.reads import read_many
from pcr_exp.loading.shared_buffers import SharedBuffers
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")

OpenLoader = Callable[..., RecordLoader]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_damaged_record_is_named_after_all_batches_before_it(
    split: Path, tmp_path: Path, open_loader: OpenLoader, num_workers: int
) -> None:
    shutil.copytree(split, tmp_path / "records")
    records = RecordSet(LocalStorage(tmp_path / "records"), "pcr")
    entry = records.index.records[4]
    path = tmp_path / "records" / "pcr" / entry.file
    data = bytearray(path.read_bytes())
    data[entry.group_ends[1] - 10] ^= 1
    path.write_bytes(data)
    received = []
    loader = open_loader(num_workers, group=2, records=records, shuffle=False)
    with pytest.raises(RecordError, match=rf"(?s)^(?!.*Caught).*group 2.*{entry.file}"):
        received += list(loader.batches(0, 0, 1))
    stream = loader.batches(0, 0, 1)
    received = [next(stream) for _ in range(5)]
    assert [label for batch in received for label in batch.labels.tolist()] == list(range(60))
    with pytest.raises(RecordError):
        next(stream)
    assert list(stream) == [], "a stream that failed is over"
    assert len(list(open_loader(num_workers, group=1, records=records).batches(0, 0, 1))) == 9


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_missing_record_is_named(
    split: Path, tmp_path: Path, open_loader: OpenLoader, num_workers: int
) -> None:
    shutil.copytree(split, tmp_path / "records")
    records = RecordSet(LocalStorage(tmp_path / "records"), "pcr")
    (tmp_path / "records" / "pcr" / records.index.records[2].file).unlink()
    with pytest.raises(StorageError, match=f"{records.index.records[2].file} does not exist"):
        list(open_loader(num_workers, records=records).batches(0, 0, 1))


def test_a_read_that_continues_another_is_not_made_with_others(split: Path) -> None:
    requests = [Request(0, 2), Request(1, 5, after=2)]
    with pytest.raises(LoaderError, match="a read that continues an earlier one must be made on its own"):
        read_many(RecordSet(LocalStorage(split), "pcr"), requests)


class Damaged(RecordPrefix):
    def parts(self, i: int, group: int | None = None) -> Sequence[Buffer]:
        return [b"no JPEG"] if i == 6 else super().parts(i, group)


class Unreadable(RecordSet):
    """Record set whose record 3 has an undecodable sample 6, counted from 0, with a correct checksum."""

    def read_prefix(self, record: int, group: int) -> RecordPrefix:
        prefix = super().read_prefix(record, group)
        if record != 3:
            return prefix
        return Damaged(**{field.name: getattr(prefix, field.name) for field in fields(RecordPrefix)})


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_image_that_does_not_decode_is_named(
    split: Path, open_loader: OpenLoader, num_workers: int
) -> None:
    records = Unreadable(LocalStorage(split), "pcr")
    file = records.index.records[3].file
    with pytest.raises(
        RecordError, match=rf"^sample 054\.jpg \(record {file}, scan group 5\) cannot be decoded"
    ):
        list(open_loader(num_workers, records=records).batches(0, 0, 1))


def test_a_bug_in_a_worker_keeps_its_type_and_traceback(open_loader: OpenLoader) -> None:
    class Broken(TrainTransform):
        def __call__(self, *_: object) -> None:
            raise ZeroDivisionError("in the transform")

    with pytest.raises(ZeroDivisionError, match=r"(?s)Broken|in the transform"):
        list(open_loader(1, transform=Broken(32, AugmentConfig())).batches(0, 0, 1))


class Slow(TrainTransform):
    """Takes 20 ms per image."""

    def __call__(self, image: Source, draws: Sequence[float], out: np.ndarray) -> None:
        time.sleep(0.02)
        super().__call__(image, draws, out)


def test_a_killed_worker_is_noticed_within_seconds(open_loader: OpenLoader) -> None:
    stream = open_loader(2, transform=Slow(32, AugmentConfig())).batches(0, 0, 100)
    next(stream)
    victim = multiprocessing.active_children()[0].pid
    threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()
    started = time.monotonic()
    with pytest.raises(LoaderError, match=rf"a decoding process died: .*{victim}.*num_workers"):
        for _ in stream:
            pass
    assert time.monotonic() - started < 10


@pytest.mark.alone
@pytest.mark.parametrize("num_workers", [0, 2])
def test_storage_that_does_not_answer_is_an_error_that_names_what_is_waited_for(
    split: Path, open_loader: OpenLoader, num_workers: int
) -> None:
    release = threading.Event()

    class Hanging(LocalStorage):
        def read(self, path: str, offset: int, length: int) -> bytes:
            if path.endswith(".pcr") and not release.wait(0):
                release.wait(30)
            return super().read(path, offset, length)

    records = RecordSet(Hanging(split), "pcr")
    config = LoaderConfig(num_workers=num_workers, shuffle_records=3, timeout_s=0.3)
    stream = open_loader(records=records, config=config, shuffle=False).batches(0, 0, 1)
    threading.Timer(0.8, release.set).start()
    started = time.monotonic()
    first = records.index.records[0].file
    wanted = rf"^no read has ended for 0\.3 s, and training waits for pcr/{first} .*from {split}.*timeout_s"
    with pytest.raises(LoaderError, match=wanted):
        next(stream)
    assert time.monotonic() - started < 3


@pytest.mark.alone
def test_slow_storage_is_waited_for_while_reads_end(split: Path, open_loader: OpenLoader) -> None:
    """A window takes longer than the timeout, but none of its reads does."""
    config = LoaderConfig(num_workers=1, shuffle_records=4, timeout_s=0.3)
    throttle = Throttle.create(StorageConfig(name="slow", requests_per_s=7))
    records = RecordSet(LocalStorage(split), "pcr")
    records.storage = ThrottledStorage(records.storage, throttle)
    assert len(list(open_loader(records=records, config=config).batches(0, 0, 1))) == 9


@pytest.mark.parametrize("timeout_s", [0.2, 7.0])
def test_a_storage_setting_that_outlasts_the_timeout_is_refused_at_once(
    records: RecordSet, open_loader: OpenLoader, timeout_s: float
) -> None:
    largest = max(records.index.prefix_bytes(record, 5) for record in range(len(records.index.records)))
    slow = StorageConfig(name="slow", bandwidth_mib_per_s=largest / 2**20 / 7, latency_ms=200)
    config = LoaderConfig(num_workers=0, shuffle_records=3, timeout_s=timeout_s)
    with pytest.raises(ConfigError, match=rf"loader\.timeout_s={timeout_s:g}: .*7\.2 s .*{largest} bytes"):
        open_loader(config=config, storage_config=slow).batches(0, 0, 1)
    config.timeout_s = 7.3
    open_loader(config=config, storage_config=slow).batches(0, 0, 1)
    config.timeout_s = None
    open_loader(config=config, storage_config=slow).batches(0, 0, 1)


def test_a_decoding_process_that_hangs_is_an_error(open_loader: OpenLoader) -> None:
    class Hanging(TrainTransform):
        def __call__(self, *_: object) -> None:
            time.sleep(2)

    config = LoaderConfig(num_workers=1, shuffle_records=3, prefetch_batches=1, timeout_s=0.5)
    loader = open_loader(config=config, batch_size=1, transform=Hanging(32, AugmentConfig()))
    with pytest.raises(LoaderError, match=r"no batch has come from the decoding processes for 0\.5 s"):
        next(loader.batches(0, 0, 1))


def test_decoding_that_is_slow_is_waited_for_without_a_limit(open_loader: OpenLoader) -> None:
    config = LoaderConfig(num_workers=1, timeout_s=None)
    loader = open_loader(config=config, transform=Slow(32, AugmentConfig()))
    labels = [label for batch in loader.batches(0, 0, 1) for label in batch.labels.tolist()]
    assert sorted(labels) == list(range(100))


def test_a_worker_that_dies_while_the_trainer_trains_is_named_when_it_asks(open_loader: OpenLoader) -> None:
    stream = open_loader(2, transform=Slow(32, AugmentConfig())).batches(0, 0, 100)
    next(stream)
    victim = multiprocessing.active_children()[0].pid
    os.kill(victim, signal.SIGKILL)
    time.sleep(0.5)
    started = time.monotonic()
    wanted = rf"a decoding process died: process {victim} was ended by signal 9\. .*num_workers"
    with pytest.raises(LoaderError, match=wanted):
        for _ in stream:
            pass
    assert time.monotonic() - started < 5
    assert list(stream) == [], "it is over"


def test_an_error_that_cannot_be_sent_is_told_in_words(open_loader: OpenLoader) -> None:
    class LocalError(Exception):
        """Cannot be pickled, because other processes cannot import it by name."""

    class Broken(TrainTransform):
        def __call__(self, *_: object) -> None:
            raise LocalError("in the transform")

    with pytest.raises(LoaderError, match=r"(?s)^decoding failed: Traceback.*LocalError: in the transform"):
        list(open_loader(1, transform=Broken(32, AugmentConfig())).batches(0, 0, 1))


def test_batches_of_processes_that_share_no_memory_are_the_same(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and pixels go through pipes, both ways at once, as with spawned processes."""
    expected = [batch.images for batch in open_loader().batches(0, 0, 1)]
    monkeypatch.setattr(SharedBuffers, "take", lambda _: None)
    transform = TrainTransform(224, AugmentConfig())
    large = [batch.images for batch in open_loader(transform=transform).batches(0, 0, 1)]
    for num_workers in (1, 3):
        found = [batch.images for batch in open_loader(num_workers).batches(0, 0, 1)]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        found = [b.images for b in open_loader(num_workers, transform=transform).batches(0, 0, 1)]
        assert all(torch.equal(a, b) for a, b in zip(found, large, strict=True))


@pytest.mark.slow
def test_batches_of_spawned_processes_are_the_same(
    open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [batch.images for batch in open_loader().batches(0, 0, 1)]
    for module in (stream_module, workers):
        monkeypatch.setattr(module, "START_METHOD", "spawn")
    found = [batch.images for batch in open_loader(1).batches(0, 0, 1)]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_an_image_that_does_not_decode_waits_for_the_batches_before_it(
    split: Path, open_loader: OpenLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds with a GPU, where finished batches are still being copied to page-locked memory."""
    records = Unreadable(LocalStorage(split), "pcr")

    def num_before(num_workers: int) -> int:
        num = 0
        with pytest.raises(RecordError, match="cannot be decoded"):
            for _ in open_loader(num_workers, records=records).batches(0, 0, 1):
                num += 1
                time.sleep(0.05)
        return num

    alone = num_before(0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: batch)
    assert num_before(2) == alone
