"""Simulated workers on one storage, with known limits and the loader's order; the cost of an order."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.loaders import scale_page as scale
from experiments.loaders.order_cost import (
    index_by_table,
    measure,
    order_of_an_epoch,
    parsed_index,
    record_sizes,
    write_index_of,
)
from experiments.loaders.scale import Machine, Reads, never_evicted, reads_of_an_epoch, simulate
from pcr_exp.loading.lanes import EpochLanes

SIZES = [64] * 63 + [32]
NUM_IMAGES = sum(SIZES)
BYTES = np.array(SIZES) * 1000.0
FREE = Machine(math.inf, 0.0, math.inf, 100.0)


def epoch(num_workers: int, **changes: int) -> Reads:
    settings = {"batch_size": 8, "window": 1, "records_ahead": 4, **changes}
    return reads_of_an_epoch(SIZES, num_workers=num_workers, **settings)


@pytest.mark.parametrize("num_workers", [1, 2, 8])
def test_with_storage_that_is_no_limit_workers_are(num_workers: int) -> None:
    found = simulate(FREE, epoch(num_workers), BYTES)
    assert found.images_per_s == pytest.approx(100 * num_workers, rel=0.02)
    assert (found.first_batch_s, found.num_images) == (0, NUM_IMAGES)


def test_storage_is_a_limit_by_its_bytes_or_its_requests() -> None:
    bandwidth = simulate(Machine(50_000.0, 0.0, math.inf, 1e9), epoch(1), BYTES)
    assert bandwidth.seconds == pytest.approx(BYTES.sum() / 50_000, rel=1e-6)
    assert bandwidth.bytes_read == BYTES.sum() and bandwidth.num_reads == len(SIZES)
    requests = simulate(Machine(math.inf, 0.0, 2.0, 1e9), epoch(1), BYTES)
    assert requests.seconds == pytest.approx(len(SIZES) / 2)


def test_latency_delays_the_first_batch_and_is_hidden_by_reads_ahead() -> None:
    far = Machine(math.inf, 1.0, math.inf, 10.0)
    ahead = simulate(far, epoch(1, records_ahead=16), BYTES)
    assert ahead.first_batch_s == 1.0 and ahead.seconds == pytest.approx(NUM_IMAGES / 10 + 1.0, rel=0.01)
    near = simulate(far, epoch(1, records_ahead=1), BYTES)
    assert near.seconds >= ahead.seconds


def test_what_a_cache_holds_costs_nothing() -> None:
    slow = Machine(10_000.0, 0.5, math.inf, 1000.0)
    cached = never_evicted(BYTES, BYTES.sum() / 4)
    assert cached.sum() == 15 and not never_evicted(BYTES, 0.0).any() and never_evicted(BYTES, math.inf).all()
    found = simulate(slow, epoch(2), BYTES, cached)
    nothing = simulate(slow, epoch(2), BYTES)
    assert found.bytes_read < 0.8 * nothing.bytes_read and found.seconds < 0.8 * nothing.seconds
    free = simulate(slow, epoch(2), BYTES, never_evicted(BYTES, math.inf))
    assert (free.bytes_read, free.num_reads, free.first_batch_s) == (0, 0, 0)


def test_reads_are_those_of_the_loader_s_lanes() -> None:
    reads = epoch(4)
    lanes = EpochLanes(SIZES, seed=0, epoch=0, num_lanes=8, window=1)
    wanted = sorted(record for slot in range(4) for record in set(lanes.slot(slot, 4).records.tolist()))
    assert sorted(reads.records.tolist()) == wanted
    assert (reads.issued <= reads.needed).all() and (np.diff(reads.issued) >= 0).all()
    assert reads.num_updates == math.ceil(NUM_IMAGES / 4 / 8)


def test_the_cost_of_an_order_and_of_an_index_is_measured(tmp_path: Path) -> None:
    assert record_sizes(2050) == [1024, 1024, 2] and record_sizes(128, 64) == [64, 64]
    order = order_of_an_epoch(5000)
    assert order["cpu_s"] > order["first_batch_cpu_s"] > 0
    write_index_of(5_000_000, tmp_path)
    parsed, mapped = parsed_index(tmp_path), index_by_table(tmp_path)
    assert (
        parsed["file_bytes"] == (tmp_path / "index.json").stat().st_size > mapped["file_bytes"] > 4883 * 100
    )
    assert parsed["cpu_s"] > 0 and mapped["cpu_s"] > 0


@pytest.mark.slow
def test_each_size_is_measured_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measure(2_000_000)
    assert [row["what"] for row in rows] == ["order_of_an_epoch", "parsed_index"]
    assert rows[0]["peak_mib"] < 2_000_000 * 24 / 2**20, "made whole, it would take this in arrays alone"
    monkeypatch.setattr("experiments.loaders.order_cost.MAX_ORDER_IMAGES", 10)
    assert [row["what"] for row in measure(5000)] == ["parsed_index"]


def test_simulations_lie_beside_the_formula() -> None:
    table = scale.simulated_table([1, 2], num_images=8192)
    assert len(table) == 2 * 4 * 3 * 2
    assert table["share_of_formula"].between(0, 1.001).all()
    assert table["wait_share"].between(-1e-9, 1).all()
    plain = table.query("cached_share == 0 and images_per_record == 1024")
    assert (plain["reads_per_record"] >= 1).all()
    costs = pd.DataFrame(
        [
            {"what": what, "num_images": num, "peak_mib": num / 1e5, "cpu_s": num / 1e7}
            for what in ("order_of_an_epoch", "parsed_index", "index_by_table")
            for num in (10**6, 10**7)
        ]
    )
    assert len(scale.draw_simulated(table).axes) == 4 and len(scale.draw_cost(costs).axes) == 2
