"""Agreement among ranks: each decides by itself, from numbers that are the same on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist


class Consensus(Protocol):
    """Averages values over ranks. All ranks call it at the same points of training, in the main thread."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the means of the ranks' values, bit-identical on every rank."""


class SingleRank:
    """The consensus of a single rank."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the values unchanged."""
        return [float(value) for value in values]


class ProcessGroup:
    """The ranks of torch's default process group."""

    def __init__(self, device: torch.device) -> None:
        """`device` is where the group's backend communicates: the CPU for gloo, this rank's GPU for NCCL."""
        self._device = device

    def mean(self, values: Sequence[float]) -> list[float]:
        """Gather the values and average them in rank order; a reduction might round differently per rank."""
        mine = torch.tensor(list(values), dtype=torch.float64, device=self._device)
        all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_ranks, mine)
        return torch.stack(all_ranks).cpu().mean(dim=0).tolist()


def open_consensus(device: torch.device) -> Consensus:
    """Return the consensus of the default process group, or of this rank alone if there is no group."""
    return ProcessGroup(device) if dist.is_available() and dist.is_initialized() else SingleRank()
