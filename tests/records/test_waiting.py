"""When two processes prepare the same records, one makes them, and the other waits and uses them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from records_encoding import read_tree

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.records.prepare import ensure_records, prepare_records

FORK = multiprocessing.get_context("fork")


@contextmanager
def preparing_elsewhere(dataset: FolderConfig, records: RecordsConfig) -> Iterator[tuple[BaseProcess, Event]]:
    """Run a process that pauses while making the records; yield it and the event that lets it continue."""
    under_way, go_on = FORK.Event(), FORK.Event()

    def progress(done: int, _: int) -> None:
        if done >= 3 and not under_way.is_set():
            under_way.set()
            go_on.wait(60)

    process = FORK.Process(target=prepare_records, args=(dataset, records, progress))
    process.start()
    try:
        assert under_way.wait(60)
        yield process, go_on
    finally:
        process.kill()
        process.join()


@contextmanager
def once_told_to_wait(caplog: pytest.LogCaptureFixture, then: Callable[[], object]) -> Iterator[None]:
    """Within the block, call `then` as soon as this process logs that it is waiting."""

    def watch() -> None:
        deadline_s = time.monotonic() + 60
        while "waiting for" not in caplog.text and time.monotonic() < deadline_s:
            time.sleep(0.01)
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join()


def test_the_second_waits_says_for_whom_and_finds_them_done(
    tmp_path: Path, dataset: FolderConfig, records: RecordsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    alone = prepare_records(dataset, replace(records, root=str(tmp_path / "alone")))
    made: list[str] = []
    with preparing_elsewhere(dataset, records) as (process, go_on), once_told_to_wait(caplog, go_on.set):
        folder = prepare_records(dataset, records, on_report=lambda split, _: made.append(split))
        process.join(60)
        assert process.exitcode == 0
    assert f"waiting for process {process.pid} on {os.uname().nodename}, which is preparing" in caplog.text
    assert made == [], "all was there"
    assert read_tree(folder) == read_tree(alone)


def test_of_one_that_is_killed_the_one_that_waits_takes_over(
    tmp_path: Path, dataset: FolderConfig, records: RecordsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    alone = prepare_records(dataset, replace(records, root=str(tmp_path / "alone")))
    with preparing_elsewhere(dataset, records) as (process, _), once_told_to_wait(caplog, process.kill):
        assert read_tree(prepare_records(dataset, records)) == read_tree(alone)


def test_images_that_changed_are_encoded_by_one_of_two(
    dataset: FolderConfig, records: RecordsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    folder = prepare_records(dataset, records)
    indexes = {path: path.stat().st_mtime_ns for path in folder.rglob("index.json")}
    cat, dog = (Path(str(dataset.root)) / "train" / name / "0.jpg" for name in ("cat", "dog"))
    cat.write_bytes(dog.read_bytes())
    reencoding = replace(records, on_change="reencode")
    made: list[str] = []
    with preparing_elsewhere(dataset, reencoding) as (_, go_on), once_told_to_wait(caplog, go_on.set):
        prepare_records(dataset, reencoding, on_report=lambda split, _: made.append(split))
    assert made == []
    assert any(path.stat().st_mtime_ns != then for path, then in indexes.items()), "the other made them"


def test_ctrl_c_ends_the_wait_and_not_the_other(
    dataset: FolderConfig, records: RecordsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with preparing_elsewhere(dataset, records) as (process, go_on):
        with once_told_to_wait(caplog, interrupt), pytest.raises(KeyboardInterrupt):
            ensure_records(dataset, records)
        go_on.set()
        process.join(60)
        assert process.exitcode == 0
