"""Whole runs under the policy that reads as much as the storage affords."""

from typing import Any

import pytest
from policy_runs import EPOCHS, decided, interrupted_at, of_epochs

from pcr_exp.config.scan import ScanConfig
from pcr_exp.policies.balanced import BalancedConfig
from pcr_exp.policies.schedule import ScheduleConfig
from pcr_exp.records.index import RecordIndex
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.protocol import Counts


@pytest.fixture
def floor() -> ScanConfig:
    return ScheduleConfig(name="schedule", groups=[2, 5], milestones=[3])


def supply_at(bytes_per_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(storage: CountingStorage) -> Counts:
        return Counts(bytes_read=storage.bytes_read, busy_s=storage.bytes_read / bytes_per_s)

    monkeypatch.setattr(CountingStorage, "counts", counts)


@pytest.fixture
def fast_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports 1 TB/s: a loaded machine that reads slower than it trains on tiny images must climb as well."""
    monkeypatch.setattr(
        CountingStorage,
        "counts",
        lambda self: Counts(bytes_read=self.bytes_read, busy_s=self.bytes_read / 1e12),
    )


@pytest.fixture
def slow_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports 100 bytes/s, so that even a loaded machine trains faster than group 1 can be read."""
    monkeypatch.setattr(
        CountingStorage,
        "counts",
        lambda self: Counts(bytes_read=self.bytes_read, busy_s=self.bytes_read / 100),
    )


@pytest.mark.usefixtures("slow_storage")
def test_balanced_reads_what_a_slow_storage_affords_and_no_less_than_its_floor(
    run: Any, index: RecordIndex, floor: ScanConfig
) -> None:
    """Reading even group 1 takes longer than an update, so the floor decides."""
    folder, rows = run(BalancedConfig(name="balanced", floor=floor, every_steps=1))
    assert of_epochs(rows, "record_bytes") == [index.epoch_bytes(group) for group in (2, 2, 2, 5, 5)]
    assert decided(rows)[0] == (0, 2)
    assert {row["group"] for row in rows if row["kind"] == "policy" and row["epoch"] >= 3} == {5}
    assert read_manifest(folder / "manifest.json").scan_group == 5


@pytest.mark.usefixtures("fast_storage")
def test_balanced_climbs_where_storage_is_fast(run: Any, floor: ScanConfig) -> None:
    config = BalancedConfig(name="balanced", floor=floor, every_steps=1, max_slowdown=0.99)
    _, rows = run(config)
    choices = [row for row in rows if row["kind"] == "policy"]
    assert choices[-1]["group"] == 10
    assert choices[-1]["measure"] == "images_per_s" or choices[-1]["epoch"] == 3
    assert rows[-1]["bytes_read"] == rows[-1]["record_bytes"]


@pytest.mark.usefixtures("fast_storage")
def test_balanced_goes_on_where_it_was_interrupted(
    configure: Any, monkeypatch: pytest.MonkeyPatch, floor: ScanConfig
) -> None:
    scan = BalancedConfig(name="balanced", floor=floor, every_steps=1, max_slowdown=0.99)
    config = configure(scan=scan, training__epochs=EPOCHS)
    folder = interrupted_at(9, config)
    monkeypatch.undo()
    before = read_rows(folder / "rows.jsonl")
    assert [row["group"] for row in before if row["kind"] == "policy"][-1] == 10
    run_training(config, progress=False)
    rows = read_rows(folder / "rows.jsonl")
    assert rows[: len(before)] == before
    assert {row["scan_group"] for row in rows[len(before) :]} == {10}
