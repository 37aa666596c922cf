"""Simulated caches save the expected bytes, and measured reads have the expected columns."""

from pathlib import Path

import pytest

from experiments.loaders.speed import cached_reads
from experiments.loaders.speed.cached_reads import NUM_RECORDS, READINGS, simulate
from experiments.loaders.speed.object_reads import measure_reads
from pcr_exp.config.loader import StorageConfig
from pcr_exp.storage.local import LocalStorage


def test_kept_prefixes_meet_the_bound_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_reads, "EPOCHS", 3)
    reading = READINGS["static"]
    quarter = NUM_RECORDS * round(cached_reads.RECORD_BYTES * cached_reads.GROUP_SHARES[5]) // 4
    kept, recent, whole = (simulate(reading, kind, quarter, 1) for kind in cached_reads.CACHES)
    assert kept["saved_share"] == pytest.approx(kept["bound_share"]) == pytest.approx(0.25)
    assert recent["saved_share"] < 0.08
    assert whole["read_share"] > 2
    everything = simulate(reading, "kept prefixes", 4 * quarter, 1)
    assert (everything["read_share"], everything["first_batch_s"]) == (0, 0)


def test_reads_are_counted_beside_the_throttle(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(bytes(100_000))
    storage = StorageConfig(name="slow", bandwidth_mib_per_s=2)
    (row,) = measure_reads(LocalStorage(tmp_path), 10_000, storage, repeats=1, seconds=0.3)
    assert (row["read_kb"], row["latency_ms"], row["repeat"]) == (10, 0, 0)
    assert 0 < row["share_of_bandwidth"] < 1.3 and row["client_cpu_us"] > 0
