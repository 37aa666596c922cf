"""A Ray cluster of two nodes on this machine, of which one may die."""

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
    """The cluster, and the node that is not its head."""

    cluster: Any
    second: Any

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def kill_second(self) -> None:
        """End it as a machine ends that loses power."""
        self.cluster.remove_node(self.second, allow_graceful=False)


@contextmanager
def two_raylets(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoRaylets]:
    """Started within; skips the test where Ray is not installed."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_worker_niceness", "0")  # at Ray's 15 they get nothing where others work, too
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
    """A node starts two agents before it registers: 9 s on a quiet machine, and Ray gives up after 30."""
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
