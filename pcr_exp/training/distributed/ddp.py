"""Data-parallel training: every process sends its gradients to all, and all take the same step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from pcr_exp.training.distributed.averaging import Averaging
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.distributed.wire import Traffic, Wire


class DdpExchange:
    """PyTorch's DistributedDataParallel with a communication hook: 3LC's push path.

    The hook sees gradients before anything else does, a clipper included. Each process keeps its own running
    statistics of normalisation layers; the first one's are evaluated.
    """

    def __init__(self, processes: Processes, wire: Wire, averaging: Averaging) -> None:
        """Average with `averaging`, which sends over `wire`."""
        self._processes = processes
        self._wire = wire
        self._averaging = averaging
        self._device = torch.device("cpu")
        self._replica: DistributedDataParallel | None = None

    @property
    def traffic(self) -> Traffic:
        """See `Exchange.traffic`."""
        return self._wire.traffic

    @property
    def network_s(self) -> float:
        """See `Exchange.network_s`."""
        return self._wire.link.waited_s

    def attach(self, model: nn.Module) -> nn.Module:
        """See `Exchange.attach`."""
        self._device = next(model.parameters()).device
        with warnings.catch_warnings():
            # Newer versions of torch prefer a key that older ones lack.
            warnings.simplefilter("ignore", FutureWarning)
            replica = DistributedDataParallel(model, broadcast_buffers=False)
        replica.register_comm_hook(None, averaging_hook(model, self._averaging))
        self._replica = replica
        return replica

    def kept_here(self) -> AbstractContextManager[None]:
        """See `Exchange.kept_here`."""
        return self._replica.no_sync() if self._replica is not None else nullcontext()

    def mean(self, loss: float) -> float:
        """See `Exchange.mean`."""
        return self._processes.mean(loss)

    def step(self, take: Callable[[], None]) -> None:
        """Take the step: the hook has averaged the gradients."""
        take()

    def global_weights(self) -> AbstractContextManager[None]:
        """Change nothing: all models are the same."""
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """See `Exchange.state_dict`."""
        return {"averaging": self._averaging.state_dict(), "wire": self._wire.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Exchange.load_state_dict`; one process alone has sent nothing so far."""
        if state:
            self._averaging.load_state_dict(state["averaging"], self._device)
            self._wire.load_state_dict(state["wire"])


def averaging_hook(
    model: nn.Module, averaging: Averaging
) -> Callable[[object, dist.GradBucket], Future[torch.Tensor]]:
    """Return a hook that averages a bucket's gradients tensor by tensor.

    State is kept by a parameter's name: DDP makes other buckets after the first step.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are strings
        gradients = bucket.gradients()
        named = [
            (names[parameter], gradient)
            for parameter, gradient in zip(bucket.parameters(), gradients, strict=True)
        ]
        for gradient, mean in zip(gradients, averaging.average(named), strict=True):
            gradient.copy_(mean)
        done: Future[torch.Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    return hook
