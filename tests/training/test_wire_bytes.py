"""Our byte counts against the kernel's, on a loopback device in its own namespace."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from gloo_processes import spawned

from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.training.distributed.exchange import Link, Wire
from pcr_exp.training.distributed.processes import Processes

WORLD_SIZE = 3
NUM_BYTES = 4_000_001
WAYS = ("all_gather", "push", "pull", "all_reduce")


def transmitted() -> int:
    """Return the bytes that the namespace's loopback device has carried, headers included."""
    (lo,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if "lo:" in line)
    return int(lo.split(":")[1].split()[8])


def count(processes: Processes) -> dict[str, tuple[float, int]]:
    wire = Wire(Link(NetworkConfig()))
    message = torch.zeros(NUM_BYTES, dtype=torch.uint8)
    ways: dict[str, Any] = {
        "all_gather": lambda: wire.all_gather(message),
        "push": lambda: wire.push(message),
        "pull": lambda: wire.pull(message if processes.first else None),
        "all_reduce": lambda: wire.all_reduce(torch.zeros(NUM_BYTES // 4)),
    }
    counted = {}
    for name, send in ways.items():
        send()  # this opens the connections
        processes.totals([0.0])
        before = transmitted(), wire.traffic.bytes_sent, wire.traffic.bytes_received
        processes.totals([0.0])
        send()
        sent = processes.totals([wire.traffic.bytes_sent - before[1]])[0]
        assert processes.totals([wire.traffic.bytes_received - before[2]])[0] == sent
        counted[name] = sent, transmitted() - before[0]
        processes.totals([0.0])
    return counted


@pytest.mark.netns
def test_the_kernel_counts_the_same() -> None:
    code = "from tests.training.test_wire_bytes import compare; compare()"
    setup = f"ip link set lo up && exec {sys.executable} -c '{code}'"
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", setup],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)


def compare() -> None:
    """Run in the namespace: fail unless each way's bytes match the kernel's count, except packet headers."""
    for name, (counted, carried) in spawned(count, WORLD_SIZE)[0].items():
        print(f"{name}: counted {counted:.0f}, on the device {carried}, {carried / counted - 1:.2%} more")
        # Headers of 66 bytes for packets of up to 64 KiB and acknowledgements, and a few control messages.
        assert counted <= carried <= 1.02 * counted, (name, counted, carried)
