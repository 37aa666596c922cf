"""Messages between processes: their contents, their bytes, and the time that a link takes."""

from typing import Any

import pytest
import torch
from gloo_processes import spawned

from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.training.distributed.exchange import Link, Wire
from pcr_exp.training.distributed.processes import Processes


def talk(processes: Processes) -> dict[str, Any]:
    waits: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    rank = processes.rank
    network = NetworkConfig(name="slow", bandwidth_mbit_per_s=8, latency_ms=10)
    wire = Wire(Link(network, now=lambda: clock[0], sleep=sleep))
    results: dict[str, Any] = {}
    for size in (0, 1, 1000):
        message = torch.full((size * (rank + 1),), rank, dtype=torch.uint8)
        results[f"gathered {size}"] = [other.tolist() for other in wire.all_gather(message)]
    results["gathering_s"], results["gathering"] = list(waits), wire.state_dict()
    waits.clear()
    wire.load_state_dict({"traffic": {"bytes_sent": 0}, "waited_s": 0.0})
    results["pushed"] = [len(m) for m in wire.push(torch.zeros(992 * (rank + 1), dtype=torch.uint8))]
    results["pulled"] = len(wire.pull(torch.zeros(492, dtype=torch.uint8) if rank == 0 else None))
    results["server_s"], results["server"] = list(waits), wire.state_dict()
    waits.clear()
    results["sum"] = wire.all_reduce(torch.full((7,), float(rank + 1))).tolist()
    results["sum_s"] = list(waits)
    results["any"] = processes.any(rank == 2), processes.any(False)
    results["mean"] = processes.mean(float(rank))
    results["first"] = processes.from_first(lambda: f"made by {rank}")
    results["states"] = processes.gather({"rank": rank})
    return results


def test_messages_of_three_processes() -> None:
    results = spawned(talk, 3)
    for rank, result in enumerate(results):
        for size in (0, 1, 1000):
            assert result[f"gathered {size}"] == [[other] * (size * (other + 1)) for other in range(3)]
        # Each of two receivers gets the message and eight bytes; 8 Mbit/s is one byte per microsecond.
        sizes = [2 * (8 + size * (rank + 1)) for size in (0, 1, 1000)]
        assert result["gathering_s"] == pytest.approx([0.01 + size * 1e-6 for size in sizes])
        assert result["gathering"]["traffic"]["bytes_sent"] == sum(sizes)
        others = sum(other + 1 for other in range(3) if other != rank)
        assert result["gathering"]["traffic"]["bytes_received"] == 3 * 2 * 8 + others * 1001
        assert result["gathering"]["waited_s"] == pytest.approx(sum(result["gathering_s"]))
        assert result["pushed"] == ([992, 1984, 2976] if rank == 0 else [])
        assert result["pulled"] == 492
        traffic = result["server"]["traffic"]
        assert traffic["bytes_sent"] == (2 * 500 if rank == 0 else 992 * (rank + 1) + 8)
        assert traffic["bytes_received"] == (1992 + 2984 if rank == 0 else 500)
        # At the server the shorter message queues behind the longer.
        waits = [1992e-6, 0.01 + 1000e-6] if rank == 0 else [0.01 + traffic["bytes_sent"] * 1e-6]
        assert result["server_s"] == pytest.approx(waits)
        assert result["server"]["waited_s"] == pytest.approx(sum(result["server_s"]))
        assert result["sum"] == [6.0] * 7
        assert result["sum_s"] == pytest.approx([4 * 0.01 + (4 * 28 // 3) * 1e-6])
        assert result["any"] == (True, False)
        assert result["mean"] == 1.0
        assert result["first"] == "made by 0"
        assert result["states"] == ([{"rank": other} for other in range(3)] if rank == 0 else [])


def test_a_late_wake_up_is_not_the_networks_doing() -> None:
    clock = [0.0]

    def oversleep(seconds: float) -> None:
        clock[0] += seconds + 0.003

    link = Link(NetworkConfig(bandwidth_mbit_per_s=8), now=lambda: clock[0], sleep=oversleep)
    for _ in range(100):
        link.send(10_000)
    assert clock[0] == pytest.approx(100 * 0.01, abs=0.004)
    assert link.waited_s == pytest.approx(1.0)


def test_an_unlimited_link_never_waits() -> None:
    link = Link(NetworkConfig(), sleep=lambda _: pytest.fail("slept"))
    link.send(10**12)
    link.queue(10**12)
    assert link.waited_s == 0
