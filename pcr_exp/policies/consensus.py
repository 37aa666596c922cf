"""How ranks come to decide alike: each decides by itself, from numbers that are the same on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist


class Consensus(Protocol):
    """Called by every rank at the same points of training, in the main thread."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """The means of the ranks' values, equal to the last bit on every rank."""


class Alone:
    """The only rank agrees with itself."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """The values."""
        return [float(value) for value in values]


class ProcessGroup:
    """The ranks of torch's default process group."""

    def __init__(self, device: torch.device) -> None:
        """`device` is where the group's backend communicates: the CPU for gloo, this rank's GPU for NCCL."""
        self._device = device

    def mean(self, values: Sequence[float]) -> list[float]:
        """Gathered, then added up in the order of ranks: a reduction might round differently on each."""
        mine = torch.tensor(list(values), dtype=torch.float64, device=self._device)
        all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_ranks, mine)
        return torch.stack(all_ranks).cpu().mean(dim=0).tolist()


def open_consensus(device: torch.device) -> Consensus:
    """That of the default process group, if this process is in one."""
    return ProcessGroup(device) if dist.is_available() and dist.is_initialized() else Alone()
