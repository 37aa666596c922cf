"""A Ray cluster of two nodes on this machine, one of which can be killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

_PATIENCE_S = 300
_LIMITS = (
    "RAY_gcs_server_port_wait_time_s",
    "RAY_gcs_server_request_timeout_seconds",
    "RAY_raylet_start_wait_time_s",
    "RAY_worker_register_timeout_seconds",
)
_NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


class TwoRaylets(NamedTuple):
    """A cluster and its second node, which is not the head."""

    cluster: Any
    second: Any

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def kill_second(self) -> None:
        """Kill the second node without warning, as if its machine lost power."""
        self.cluster.remove_node(self.second, allow_graceful=False)


@contextmanager
def two_raylets(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoRaylets]:
    """Run the cluster inside the `with` block; skip the test if Ray is not installed."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_worker_niceness", "0")  # at Ray's 15, workers get no CPU time on a busy machine
    for limit in _LIMITS:
        monkeypatch.setenv(limit, str(_PATIENCE_S))
    _wait_longer_for_nodes(monkeypatch)
    cluster = Cluster()
    try:
        cluster.add_node(**_NODE, include_dashboard=False)
        yield TwoRaylets(cluster, cluster.add_node(**_NODE))
    finally:
        cluster.shutdown()


def _wait_longer_for_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray wait longer than 30 s: a node first starts two agents, which takes 9 s on an idle machine."""
    from ray._private import services

    get_node = services.get_node

    def get_node_patiently(*given: Any) -> Any:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return get_node(*given)
            except RuntimeError:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(0.2)

    monkeypatch.setattr(services, "get_node", get_node_patiently)
