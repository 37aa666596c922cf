"""Ranks with different observations decide alike, in two real processes on gloo."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pcr_exp.config.scan import ScanConfig
from pcr_exp.policies.balanced import BalancedConfig, BalancedScan
from pcr_exp.policies.consensus import Consensus, ProcessGroup, SingleRank, open_consensus
from pcr_exp.policies.plateau import PlateauConfig, PlateauScan
from pcr_exp.policies.policy import StaticScan, Update
from pcr_exp.storage.protocol import Counts

CPU = torch.device("cpu")


def plateau_of(rank: int, consensus: Consensus) -> list[int | None]:
    """Alone, rank 0 would see a plateau after epoch 1; rank 1 and the mean of both see it after epoch 3."""
    config = PlateauConfig(name="plateau", group=10, candidates=[1, 10], patience_epochs=1)
    policy = PlateauScan(config, consensus)
    losses = ((1.0, 1.0, 1.0, 1.0), (1.0, 0.8, 0.6, 0.6))[rank]
    decided = []
    for epoch, loss in enumerate(losses):
        policy.observe(Update(epoch, True, 8, 8, 10, loss, 0.0, 0.0))
        decided.append(policy.group(epoch + 2, 0))
    return decided


def balanced_of(rank: int, consensus: Consensus) -> list[int | None]:
    """Alone, rank 0 could afford group 10 and rank 1 only group 1."""
    steps = 0
    sizes = {1: 10.0, 5: 50.0, 10: 100.0}

    def counts() -> Counts:
        return Counts(bytes_read=steps * (2000, 20)[rank], busy_s=float(steps))

    config = BalancedConfig(name="balanced", floor=ScanConfig(name="group_1", group=1), every_steps=2)
    policy = BalancedScan(config, StaticScan(1), sizes, counts, consensus)
    groups = []
    for _ in range(9):
        steps += 1
        policy.observe(Update(0, False, 10, 10, 1, 1.0, train_s=float(steps), wait_s=0.0))
        groups.append(policy.group(0, 0))
    return groups


def decide(rank: int, store: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        consensus = open_consensus(CPU)
        means = consensus.mean([0.1 + rank, 1e300 * rank, 3.0])
        results.put((rank, means, plateau_of(rank, consensus), balanced_of(rank, consensus)))
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the results of each of two ranks."""
    context = multiprocessing.get_context("forkserver")
    results = context.Queue()
    store = tmp_path_factory.mktemp("gloo") / "store"
    ranks = [context.Process(target=decide, args=(rank, str(store), results)) for rank in range(2)]
    for process in ranks:
        process.start()
    try:
        return sorted(results.get(timeout=120) for _ in ranks)
    finally:
        for process in ranks:
            process.join(timeout=30)
            process.kill()


def test_means_are_equal_on_all_ranks(decided: list[Any]) -> None:
    (_, mine, *_), (_, his, *_) = decided
    assert mine == his == [(0.1 + 1.1) / 2, 5e299, 3.0]


def test_ranks_that_would_differ_decide_alike(decided: list[Any]) -> None:
    alone = [(plateau_of(rank, SingleRank()), balanced_of(rank, SingleRank())) for rank in range(2)]
    assert alone[0][0] == [10, None, None, None]
    assert alone[1][0] == [10, 10, 10, None]
    assert [groups[-1] for _, groups in alone] == [10, 1]
    (_, _, *mine), (_, _, *his) = decided
    assert mine == his
    plateau, balanced = mine
    assert plateau == [10, 10, 10, None], "the mean loss falls in epochs 1 and 2"
    assert balanced[-1] == 5, "1010 bytes/s on average: 10 images/s at group 10 leave no headroom"


def test_a_process_that_is_in_no_group_is_alone(tmp_path: Path) -> None:
    assert isinstance(open_consensus(CPU), SingleRank)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        consensus = open_consensus(CPU)
        assert isinstance(consensus, ProcessGroup)
        assert consensus.mean([0.3, 2]) == SingleRank().mean([0.3, 2]) == [0.3, 2.0]
    finally:
        dist.destroy_process_group()
