"""Runs with a cache have the same rows for fewer bytes; with `scan=cached`, the plan decides."""

from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError
from pcr_exp.policies.schedule import CachedConfig, CachedScan, planned_cache
from pcr_exp.records.index import RecordIndex
from pcr_exp.runs.rows import deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import MIB


def train(config: Any) -> tuple[str, list[dict[str, Any]]]:
    outcome = run_training(config, progress=False)
    return outcome.run_id, read_rows(outcome.folder / "rows.jsonl")


def test_a_cache_saves_reads_and_changes_nothing_else(configure: Any, tmp_path: Path) -> None:
    """One read at a time: with so few records, reads of two epochs would otherwise overlap."""
    one = {"storage__reads_in_flight": 1}
    cache = {**one, "storage__cache": str(tmp_path / "cache"), "storage__cache_mib": 64.0}
    plain_id, plain = train(configure(runs_root=str(tmp_path / "plain"), **one))
    cached_id, cached = train(configure(**cache))
    assert cached_id == plain_id
    assert deterministic_part(cached) == deterministic_part(plain)
    epoch_bytes = plain[-1]["bytes_read"] // 2
    assert (cached[-1]["num_requests"], cached[-1]["bytes_read"]) == (4, epoch_bytes)
    assert cached[-1]["cached_bytes"] == epoch_bytes
    assert plain[-1]["cached_bytes"] == 0
    _, again = train(configure(runs_root=str(tmp_path / "again"), **cache))
    assert again[-1]["num_requests"] == 0, "another run on the same cache"
    half = {**one, "storage__cache": "memory", "storage__cache_mib": epoch_bytes / 2 / MIB}
    _, partly = train(configure(runs_root=str(tmp_path / "half"), training__epochs=3, **half))
    assert partly[-1]["bytes_read"] == 3 * epoch_bytes - 2 * round(epoch_bytes / 2), "the bound"


def test_what_is_substituted_follows_from_the_plan(
    configure: Any, index: RecordIndex, tmp_path: Path
) -> None:
    """A run that finds its cache lost has the same rows as a run that does not."""
    two_records = sum(sorted(index.prefix_bytes(record, 2) for record in range(4))[-2:])
    scan = CachedConfig(name="cached", group=5, cached_group=2, cache_mib=two_records / MIB, share=0.5)
    settings = {"scan": scan, "training__epochs": 4}
    plain_id, plain = train(configure(runs_root=str(tmp_path / "plain"), **settings))
    cache = {"storage__cache": "memory", "storage__cache_mib": 1.0}
    cached_id, cached = train(configure(runs_root=str(tmp_path / "cached"), **settings, **cache))
    assert plain_id == cached_id
    assert deterministic_part(plain) == deterministic_part(cached)
    assert cached[-1]["bytes_read"] < plain[-1]["bytes_read"]
    assert {row["scan_group"] for row in plain} >= {5}
    other = CachedConfig(name="cached", group=5, cached_group=2, cache_mib=9.0, share=0.5)
    assert train(configure(scan=other, training__epochs=1))[0] != plain_id
    too_small = {"storage__cache": "memory", "storage__cache_mib": 1e-4}
    with pytest.raises(
        ConfigError, match=r"storage\.cache_mib=0\.0001: wanted .* the size that scan\.cache_mib plans"
    ):
        train(configure(runs_root=str(tmp_path / "small"), **settings, **too_small))


def test_the_plan_is_a_function_of_seed_epoch_and_size(index: RecordIndex) -> None:
    sizes = [index.prefix_bytes(record, 2) for record in range(len(index.records))]
    planned = planned_cache(index, 2, sum(sizes) - 1, seed=0)
    assert len(planned) == len(sizes) - 1
    assert planned == {record: sizes[record] for record in planned}
    assert planned_cache(index, 2, sum(sizes), seed=0).keys() == set(range(len(sizes)))
    assert not planned_cache(index, 2, 1, seed=0)
    scan = CachedScan(CachedConfig(name="cached", group=5, cached_group=2, share=0.5), index, seed=1)
    groups = [[scan.group(epoch, record) for record in range(len(sizes))] for epoch in range(40)]
    assert groups[0] == [5] * len(sizes), "nothing is cached yet"
    drawn = [group for epoch in groups[1:] for group in epoch]
    assert set(drawn) == {2, 5} and 0.3 < drawn.count(2) / len(drawn) < 0.7
    again = CachedScan(CachedConfig(name="cached", group=5, cached_group=2, share=0.5), index, seed=1)
    assert [[again.group(epoch, r) for r in range(len(sizes))] for epoch in range(40)] == groups


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"cached_group": 5}, "cached_group"), ({"cache_mib": 0.0}, "cache_mib"), ({"share": 1.5}, "share")],
)
def test_values_that_make_no_sense(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"scan\.{key}"):
        CachedConfig(name="cached", group=5, **changes)
    assert isinstance(CachedConfig(name="cached", group=5), ScanConfig)
