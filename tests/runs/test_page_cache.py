"""A run reports how warm the page cache was at its start, and drops its records first if told to."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.runs.data import open_data, settle_page_cache
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import machine as page_cache


@pytest.fixture
def on_disk(tmp_path: Path, prepared: Path) -> Path:
    """A separate copy of the records, all in the page cache, that the kernel can drop."""
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip(f"{tmp_path} is on a file system in memory: give pytest a --basetemp on a disk")
    return Path(shutil.copytree(prepared / "records", tmp_path / "records"))


@pytest.fixture
def in_memory(prepared: Path) -> Iterator[Path]:
    """Records on an in-memory file system, which cannot be dropped."""
    folder = Path("/dev/shm") / f"pcr-exp-test-{os.getpid()}"
    if not os.access(folder.parent, os.W_OK):
        pytest.skip("there is no /dev/shm here")
    shutil.copytree(prepared / "records", folder)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("cold", "share"), [(False, 1.0), (True, 0.0)])
def test_a_run_begins_as_cold_as_it_was_told_to_and_says_so(
    configure: Any, on_disk: Path, cold: bool, share: float
) -> None:
    config = configure(storage__cold_cache=cold, records__root=str(on_disk))
    outcome = run_training(config)
    assert read_manifest(outcome.folder / "manifest.json").cached_share == share
    text = (outcome.folder / "log.txt").read_text()
    assert f"page cache: {share:.0%} of the training records" in text
    assert ("storage.cold_cache=true: 4 of 4 record files dropped" in text) == cold
    assert "could not be" not in text


def test_what_cannot_be_dropped_is_told_with_the_reason(
    configure: Any, in_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(storage__cold_cache=True, records__root=str(in_memory))
    with caplog.at_level(logging.INFO):
        assert settle_page_cache(config, open_data(config)) == 1.0
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"storage.cold_cache=true: 4 files could not be dropped, such as {in_memory}/"
    )
    assert warnings[0].endswith("100% of it stays in memory (in use, or on a file system in memory)")
    assert "page cache: 100% of the training records" in caplog.text


def test_other_machines_keep_what_they_keep(
    configure: Any, on_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(storage__cold_cache=True, records__root=str(on_disk))
    data = open_data(config)
    config.records.root = f"file://{on_disk}"
    assert settle_page_cache(config, data) is None
    assert f"nothing was dropped, because records.root=file://{on_disk} is not a local folder" in caplog.text
    assert all(page_cache.resident_share(path) == 1.0 for path in on_disk.rglob("train/pcr/*.pcr"))


def test_a_state_that_the_kernel_does_not_tell_is_unknown(
    configure: Any, on_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(records__root=str(on_disk))
    data = open_data(config)
    monkeypatch.setattr(page_cache, "_may_ask", lambda *_: False)
    with caplog.at_level(logging.INFO):
        assert settle_page_cache(config, data) is None
    assert "page cache: unknown share of the training records" in caplog.text
