"""A network of two namespaces: tc limits the rate of a server's bytes, and requests take a fixed time.

client -- delay line (requests, acknowledgements) --> server
client <-- virtual Ethernet, shaped by tc's token bucket (tbf) -- server
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_MTU = 1500
_FRAME_BYTES = _MTU + 14
_PAYLOAD_BYTES = _MTU - 52
"""Payload of a packet, without the headers of IP and of TCP with timestamps."""


@dataclass(frozen=True)
class Network:
    """Names of two namespaces, and the server's address as the client sees it."""

    server: str
    client: str
    address: str

    def within(self, namespace: str, *command: str) -> list[str]:
        """Return the command line that runs a command in one of the namespaces."""
        return ["ip", "netns", "exec", namespace, *command]


@contextmanager
def shaped_network(bytes_per_s: float, latency_s: float) -> Iterator[Network]:
    """Yield a network that delivers `bytes_per_s` of payload, at least `latency_s` after each request.

    It exists on this machine only, and is removed after the block. Skips if it cannot be made.
    """
    if not Path("/dev/net/tun").exists():
        pytest.skip("/dev/net/tun is not there: wanted a kernel with TUN interfaces")
    with joined_namespaces() as network, ExitStack() as stack:
        shape(network.server, bytes_per_s)
        stack.enter_context(_delay_line(network, latency_s))
        yield network


@contextmanager
def joined_namespaces() -> Iterator[Network]:
    """Yield two namespaces joined by a virtual Ethernet called `wire`, as fast as the machine.

    They are removed after the block. Skips if they cannot be made.
    """
    if os.geteuid() != 0:
        pytest.skip("not root: only root can make network namespaces")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install iproute2")
    name = f"pcr-exp-{os.getpid()}"
    network = Network(f"{name}-s", f"{name}-c", "10.203.0.1")
    with ExitStack() as stack:
        for namespace in (network.server, network.client):
            _run("ip", "netns", "add", namespace)
            stack.callback(_run, "ip", "netns", "del", namespace)
        _join(network)
        yield network


def shape(namespace: str, bytes_per_s: float, burst: str = "32kb") -> None:
    """Limit the payload that leaves a namespace by the wire to this rate, except for bursts after silence."""
    bits_per_s = round(8 * bytes_per_s * _FRAME_BYTES / _PAYLOAD_BYTES)
    shaping = ("tbf", "rate", f"{bits_per_s}bit", "burst", burst, "limit", "16mb")
    result = subprocess.run(
        ["tc", "-n", namespace, "qdisc", "add", "dev", "wire", "root", *shaping],
        capture_output=True,
        text=True,
    )
    if "qdisc kind is unknown" in result.stderr:
        pytest.skip("this kernel has no token bucket filter (module sch_tbf)")
    assert result.returncode == 0, result.stderr


def _join(network: Network) -> None:
    ends = {network.server: "10.203.0.1/24", network.client: "10.203.0.2/24"}
    _run(
        *("ip", "link", "add", "wire", "netns", network.server),
        *("type", "veth", "peer", "name", "wire", "netns", network.client),
    )
    for namespace, address in ends.items():
        _run("ip", "-n", namespace, "address", "add", address, "dev", "wire")
        _run("ip", "-n", namespace, "link", "set", "wire", "mtu", str(_MTU), "up")
        _run("ip", "-n", namespace, "link", "set", "lo", "up")  # a process may also talk to itself
        for setting, value in {
            # Requests and answers take different routes.
            "conf/all/rp_filter": "0",
            "conf/default/rp_filter": "0",
            "conf/wire/rp_filter": "0",
            # Steady, unlike BBR, which sends little now and then in order to measure.
            "tcp_congestion_control": "reno",
            "tcp_slow_start_after_idle": "0",
        }.items():
            _run(*network.within(namespace, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{setting}"))


@contextmanager
def _delay_line(network: Network, latency_s: float) -> Iterator[None]:
    program = Path(__file__).with_name("storage_delay_line.py")
    line = subprocess.Popen(
        [sys.executable, str(program), network.client, network.server, str(latency_s)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert line.stdout is not None
        assert line.stdout.readline() == "ready\n", "the delay line did not start"
        for namespace in (network.client, network.server):
            _run("ip", "-n", namespace, "link", "set", "delay", "mtu", str(_MTU), "up")
        route = (f"{network.address}/32", "dev", "delay", "src", "10.203.0.2")
        _run("ip", "-n", network.client, "route", "add", *route)
        yield
    finally:
        line.kill()
        line.communicate()


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
