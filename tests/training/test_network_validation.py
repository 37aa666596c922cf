"""A training of two processes takes the same time with the network throttle as on a link slowed by `tc`.

Run as root, on an otherwise idle machine, with
`python -m pytest -m "root and slow" tests/training/test_network_validation.py -s`. With
NETWORK_RESULTS=<folder> in the environment, the measurements are appended to gradients.csv there.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from storage_netns import joined_namespaces, shape

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.netns]

REPO = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("network_updates.py")
REPEATS = 3


def train_both(spec: dict[str, Any], namespaces: Sequence[Sequence[str]], address: str) -> dict[str, Any]:
    """Run two processes, each in its namespace if given; return the JSON object that the first one prints."""
    told = []
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [*within, sys.executable, str(PROGRAM), json.dumps(spec)],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=REPO,
                    env=_environment(rank, address, "wire" if within else "lo"),
                )
            )
            for rank, within in enumerate(namespaces)
        ]
        for worker in workers:
            told.append(worker.communicate(timeout=60)[0])
            assert worker.returncode == 0
    return json.loads(told[0])


def burst_bytes(mbit_per_s: float) -> int:
    """Return the burst that an idle link lets through: one packet, small against 3LC's messages of 50 kB.

    It is at least the bytes of half a millisecond; otherwise timers are too coarse for tc's rate.
    """
    return round(max(1600, mbit_per_s * 1e6 / 8 * 0.0005))


def _environment(rank: int, address: str, device: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(REPO),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": address,
        "MASTER_PORT": "29417",
        "GLOO_SOCKET_IFNAME": device,
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("gradients", "mbit_per_s", "num_updates"),
    [
        ({"name": "none"}, 10, 4),
        ({"name": "int8"}, 10, 8),
        ({"name": "threelc"}, 10, 60),
        ({"name": "threelc", "mode": "server"}, 10, 40),
        ({"name": "none"}, 100, 30),
        ({"name": "threelc"}, 100, 90),
    ],
)
def test_updates_take_as_long_as_over_a_network_that_tc_slows(
    gradients: dict[str, Any], mbit_per_s: float, num_updates: int
) -> None:
    spec = {"gradients": gradients, "num_updates": num_updates}
    rows = []
    for repeat in range(REPEATS):
        with joined_namespaces() as network:
            for namespace in (network.server, network.client):
                shape(namespace, mbit_per_s * 1e6 / 8, f"{burst_bytes(mbit_per_s)}b")
            ends = [network.within(network.server), network.within(network.client)]
            real = train_both(spec | {"mbit_per_s": None}, ends, network.address)
        ours = train_both(spec | {"mbit_per_s": mbit_per_s}, [[], []], "127.0.0.1")
        assert real["loss"] == ours["loss"] and real["bytes_sent"] == ours["bytes_sent"], (
            "not the same training"
        )
        rows.append(
            {
                "gradients": gradients["name"],
                "mode": gradients.get("mode", "ddp"),
                "bandwidth_mbit_per_s": mbit_per_s,
                "num_updates": num_updates,
                "bytes_sent": ours["bytes_sent"],
                "bytes_over_bandwidth_s": ours["bytes_sent"] / (mbit_per_s * 1e6 / 8),
                "repeat": repeat,
                "real_s": real["seconds"],
                "throttle_s": ours["seconds"],
                "ratio": ours["seconds"] / real["seconds"],
            }
        )
    frame = pd.DataFrame(rows)
    print("\n" + frame.to_string(index=False))
    if folder := os.environ.get("NETWORK_RESULTS"):
        path = Path(folder, "gradients.csv")
        frame.to_csv(path, mode="a", header=not path.exists(), index=False)
    ratio = statistics.median(frame["throttle_s"]) / statistics.median(frame["real_s"])
    assert ratio == pytest.approx(1.0, abs=0.05)
