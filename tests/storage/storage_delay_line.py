"""Run as a program: delay every packet from one network namespace to another by a fixed time.

Arguments: the source namespace, the target namespace, and the delay in seconds. It makes a TUN interface
named `delay` in each, and prints `ready` when both exist. Not every kernel has tc's own delay (netem).
"""

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_MAX_PACKET = 65536


def open_tun(namespace: str) -> int:
    """Open a new TUN interface in a namespace, and leave this process in that namespace."""
    with open(f"/run/netns/{namespace}") as file:  # noqa: PTH123
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"delay", _IFF_TUN | _IFF_NO_PI))
    return tun


def carry(source: int, target: int, delay_s: float) -> None:
    """Move packets, each `delay_s` after its arrival, until the process is ended."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        timeout_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable, _, _ = select.select([source], [], [], timeout_s)
        if readable:
            held.append((time.monotonic() + delay_s, os.read(source, _MAX_PACKET)))
        while held and held[0][0] <= time.monotonic():
            os.write(target, held.popleft()[1])


if __name__ == "__main__":
    ends = open_tun(sys.argv[1]), open_tun(sys.argv[2])
    print("ready", flush=True)
    carry(*ends, float(sys.argv[3]))
