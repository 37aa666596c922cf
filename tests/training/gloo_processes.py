"""Real processes on loopback. `spawned(function, 2, ...)` calls it in both and returns their results."""

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from pcr_exp.training.distributed.processes import Processes, join_processes


def start(function: Callable[..., None], args: tuple[object, ...], num: int, *, join: bool = True) -> Any:
    """Like `torch.multiprocessing.spawn`, but forked from a process that has imported everything."""
    return mp.start_processes(function, args, num, join, start_method="forkserver")


def spawned(function: Callable[..., Any], world_size: int, *args: object) -> list[Any]:
    """Call `function(processes, *args)` in processes that have joined; return the results by rank."""
    with tempfile.TemporaryDirectory() as folder:
        start(_run, (world_size, free_port(), folder, function, args), world_size)
        return [torch.load(Path(folder, str(rank)), weights_only=False) for rank in range(world_size)]


def _run(
    rank: int, world_size: int, port: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ |= environment(rank, world_size, port)
    torch.set_num_threads(1)
    processes: Processes = join_processes(world_size)
    torch.save(function(processes, *args), Path(folder, str(rank)))
    processes.totals([0.0])  # no process leaves while another still communicates


def environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Return the environment variables that torchrun sets for a process."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
