"""The processes that train together, as started by `torchrun`."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import psutil
import torch
import torch.distributed as dist
from torch import nn

from pcr_exp.errors import ConfigError, RunError
from pcr_exp.system.process import end_with_parent, terminate

T = TypeVar("T")

_START_TIMEOUT = timedelta(minutes=10)
"""Time in which all processes must join."""
_WORK_TIMEOUT = timedelta(days=365)
"""Practically no limit, as processes may wait while the first makes records of a large dataset or evaluates.
The end of a process is noticed at once, because its connections close."""
_DYING_S = 2.0
_SIGNS_OF_DEATH = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
)


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among all. If there are others, all must call every method in the same order.

    Data exchanged here (losses, scores, checkpoints) is not counted as traffic, because it serves to monitor
    the experiment, not to train.
    """

    rank: int = 0
    world_size: int = 1
    per_host: int = 1
    """Processes on this host, which share its cores."""
    places: tuple[tuple[str, int], ...] = ()
    """Host and process id of each process, by rank."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and computes metrics."""
        return self.rank == 0

    def totals(self, numbers: list[float]) -> list[float]:
        """Return each number's sum over all processes; whole numbers below 2^53 stay exact."""
        if self.world_size == 1:
            return numbers
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values)
        return values.tolist()

    def mean(self, number: float) -> float:
        """Return the mean over all processes."""
        return self.totals([number])[0] / self.world_size

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true in any process."""
        return self.totals([float(flag)])[0] > 0

    def from_first(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process, and return its result in all."""
        if self.world_size == 1:
            return make()
        made = [make() if self.first else None]
        dist.broadcast_object_list(made, src=0)
        return cast(T, made[0])

    def gather(self, own: T) -> list[T]:
        """Return all processes' values by rank in the first process, and an empty list elsewhere."""
        if self.world_size == 1:
            return [own]
        given: list[T | None] | None = [None] * self.world_size if self.first else None
        dist.gather_object(own, given, dst=0)
        return cast(list[T], given or [])


def join_processes(world_size: int) -> Processes:
    """Join the other processes, if there are any; on a GPU machine, select this process's GPU.

    Args:
        world_size: Number of processes in the configuration.

    Raises:
        ConfigError: the process was not started as one of that many.
        RunError: the others did not join in time.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != world_size:
        raise ConfigError(
            f"world_size={world_size}, but {started} process(es) were started. Leave out the key, and start "
            f"with: torchrun --nproc-per-node {world_size} -m experiments.train ..."
        )
    if world_size == 1:
        return Processes()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(os.getppid(), terminate)  # torchrun cannot end its processes if it is killed
    per_host = int(os.environ.get("LOCAL_WORLD_SIZE", str(world_size)))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if not dist.is_initialized():
        _meet(backend_for(per_host))
        atexit.register(_leave)
    places: list[tuple[str, int]] = [("", 0)] * world_size
    dist.all_gather_object(places, (socket.gethostname(), os.getpid()))
    return Processes(dist.get_rank(), world_size, per_host, tuple(places))


def backend_for(per_host: int) -> str:
    """Return a process group's backends: NCCL for GPU tensors, if each process of a host has its own GPU."""
    if torch.cuda.is_available() and dist.is_nccl_available() and per_host <= torch.cuda.device_count():
        return "cpu:gloo,cuda:nccl"
    return "gloo"


@contextmanager
def model_of_first(processes: Processes, model: nn.Module) -> Iterator[None]:
    """Give all processes the first one's weights and normalisation statistics within the context."""
    if processes.world_size == 1:
        yield
        return
    tensors = [tensor.data for tensor in (*model.parameters(), *model.buffers())]
    own = [] if processes.first else [tensor.clone() for tensor in tensors]
    for tensor in tensors:
        dist.broadcast(tensor, src=0)
    try:
        yield
    finally:
        for tensor, value in zip(tensors, own, strict=False):
            tensor.copy_(value)


@contextmanager
def named_process_death(processes: Processes) -> Iterator[None]:
    """Replace torch's error for an unreachable process by a RunError within the context.

    It names the process, if that was on this host.

    Any communication may raise it, even in the middle of an update, so this context belongs around a whole
    run.
    """
    try:
        yield
    except RuntimeError as error:
        # torch has no error class for this; other errors are raised unchanged.
        if not any(sign in str(error) for sign in _SIGNS_OF_DEATH):
            raise
        raise RunError(
            f"{ended_ranks(processes)} of this run has ended, or can no longer be reached. Its own messages "
            "say why. Run the same command again to continue from the last checkpoint. "
            f"({str(error).splitlines()[0]})"
        ) from error


def ended_ranks(processes: Processes) -> str:
    """Describe the processes of this host that have ended; wait up to 2 s for one to end."""
    here = socket.gethostname()
    until_s = time.monotonic() + _DYING_S
    while True:
        ended = [
            f"rank {rank} (process {pid} on {host})"
            for rank, (host, pid) in enumerate(processes.places)
            if host == here and not _lives(pid)
        ]
        if ended or time.monotonic() > until_s:
            return " and ".join(ended) or "another process"
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _meet(backend: str) -> None:
    """Wait until all processes have joined, and open the process group."""
    world_size = int(os.environ["WORLD_SIZE"])
    try:
        store, rank, _ = next(dist.rendezvous("env://", timeout=_START_TIMEOUT))
        # A store may outlive a start, and hold the addresses of processes that have since died.
        store = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        store.set(f"pcr_exp/{rank}", "here")
        store.wait([f"pcr_exp/{other}" for other in range(world_size)], _START_TIMEOUT)
    except RuntimeError as error:
        seconds = _START_TIMEOUT.total_seconds()
        raise RunError(
            f"not all {world_size} processes of this run started within {seconds:g} s. Start them together "
            "with torchrun, and read the messages of those that ended."
        ) from error
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=_WORK_TIMEOUT)


def _leave() -> None:
    # Threads of the group that outlive the interpreter abort a process that has done all its work. Models
    # wrapped by DDP keep the group alive, and are part of reference cycles.
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()
