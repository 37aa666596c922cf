"""Data-parallel training: all processes take the same step, with the mean of their gradients."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from pcr_exp.gradients.tensors import Named, Shape, TensorCodec, is_small
from pcr_exp.training.distributed.exchange import (
    Wire,
    WireExchange,
    require_gradients,
    trained_parameters,
)
from pcr_exp.training.distributed.processes import Processes


class Averaging(ABC):
    """A method of averaging. By default it leaves nothing out of its messages."""

    @abstractmethod
    def average(self, gradients: Named) -> list[Tensor]:
        """Return each tensor's mean over all processes, in its shape.

        All processes give tensors with the same names and shapes in the same order.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what messages have left out so far."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:  # noqa: B027
        """Continue from `state`."""


class AllReduce(Averaging):
    """All-reduce in one floating-point type; float32 is plain data-parallel training."""

    def __init__(self, wire: Wire, dtype: torch.dtype) -> None:
        """Send in `dtype`. Each process divides before it sends, so that 16-bit sums overflow less easily."""
        self._wire = wire
        self._dtype = dtype

    def average(self, gradients: Named) -> list[Tensor]:
        """See `Averaging.average`."""
        flat = torch.cat([gradient.detach().reshape(-1) for _, gradient in gradients])
        share = (flat / self._wire.world_size).to(self._dtype)
        self._wire.traffic.pushed_values += len(share)
        self._wire.traffic.pushed_bytes += share.nbytes
        mean = self._wire.all_reduce(share).to(flat.dtype)
        sizes = [gradient.numel() for _, gradient in gradients]
        return [
            part.view(gradient.shape)
            for part, (_, gradient) in zip(mean.split(sizes), gradients, strict=True)
        ]


class AllGather(Averaging):
    """All-gather of every process's message, for codecs whose messages cannot be summed."""

    def __init__(self, wire: Wire, codec: TensorCodec) -> None:
        """Send the messages that `codec` encodes."""
        self._wire = wire
        self._codec = codec

    def average(self, gradients: Named) -> list[Tensor]:
        """See `Averaging.average`. Every process adds in rank order, so results are bit-identical."""
        message, sent = self._codec.encode(gradients)
        shapes = [gradient.shape for _, gradient in gradients]
        traffic = self._wire.traffic
        traffic.pushed_values += sum(map(math.prod, shapes))
        traffic.pushed_plain_values += self._codec.num_plain(shapes)
        traffic.pushed_bytes += len(message)
        device = gradients[0][1].device
        # A process's own message decodes to `sent`, by the encoder's contract.
        return mean_of(
            [
                sent if rank == self._wire.rank else self._codec.decode(each.to(device), shapes)
                for rank, each in enumerate(self._wire.all_gather(message))
            ]
        )

    def state_dict(self) -> dict[str, Any]:
        """See `TensorCodec.state_dict`."""
        return self._codec.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """See `TensorCodec.load_state_dict`."""
        self._codec.load_state_dict(state, device)


def mean_of(senders: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return each tensor's mean over its senders, added in their order."""
    return [reduce(torch.add, each) / len(senders) for each in zip(*senders, strict=True)]


class DdpExchange(WireExchange):
    """PyTorch's DistributedDataParallel with a communication hook (3LC's push path). All weights stay equal.

    The hook averages gradients before the step, and before any other use of them, such as clipping. Each
    process keeps its own running statistics of normalisation layers; the first one's are evaluated.
    """

    def __init__(self, processes: Processes, wire: Wire, averaging: Averaging) -> None:
        """Average with `averaging`, which sends over `wire`."""
        super().__init__(processes, wire)
        self._averaging = averaging
        self._device = torch.device("cpu")
        self._replica: DistributedDataParallel | None = None
        self._trained: dict[str, nn.Parameter] = {}

    def attach(self, model: nn.Module) -> nn.Module:
        """See `Exchange.attach`."""
        self._trained = trained_parameters(model)
        self._device = next(model.parameters()).device
        with warnings.catch_warnings():
            # Newer versions of torch prefer an argument that older ones lack.
            warnings.simplefilter("ignore", FutureWarning)
            replica = DistributedDataParallel(model, broadcast_buffers=False)
        replica.register_comm_hook(None, averaging_hook(model, self._averaging))
        self._replica = replica
        return replica

    def accumulating(self) -> AbstractContextManager[None]:
        """See `Exchange.accumulating`."""
        return self._replica.no_sync() if self._replica is not None else nullcontext()

    def step(self, take: Callable[[], None]) -> None:
        """See `Exchange.step`.

        Raises:
            ConfigError: a parameter has no gradient. DDP would not average those in its bucket either.
        """
        require_gradients(self._trained, "ddp")
        take()

    def state_dict(self) -> dict[str, Any]:
        """See `Exchange.state_dict`."""
        return {"averaging": self._averaging.state_dict(), "wire": self._wire.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Exchange.load_state_dict`. The state is empty if a single process saved it."""
        if state:
            self._averaging.load_state_dict(state["averaging"], self._device)
            self._wire.load_state_dict(state["wire"])


def averaging_hook(
    model: nn.Module, averaging: Averaging
) -> Callable[[object, dist.GradBucket], Future[torch.Tensor]]:
    """Return a hook that averages a bucket's gradients tensor by tensor.

    State is keyed by parameter name, because DDP rebuilds its buckets after the first step.
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


class PowerSGD(Averaging):
    """One power iteration per step, warm-started from the last one, with error feedback.

    Small tensors, and those that two factors would not make smaller, are averaged uncompressed. PyTorch's own
    hook keys its state by bucket, which does not survive a checkpoint; this one keys it by tensor name.
    """

    def __init__(self, wire: Wire, rank: int, min_values: int) -> None:
        """Approximate matrices by products of two factors, with `rank` columns and rows."""
        self._all_reduce = AllReduce(wire, torch.float32)
        self._wire = wire
        self._rank = rank
        self._min_values = min_values
        self._residuals: dict[str, Tensor] = {}
        self._factors: dict[str, Tensor] = {}

    def average(self, gradients: Named) -> list[Tensor]:
        """See `Averaging.average`. A mean that is not finite leaves residuals and factors unchanged."""
        matrices = {
            name: gradient.detach().reshape(len(gradient), -1).float() + self._residuals.get(name, 0)
            for name, gradient in gradients
            if self._is_factored(gradient.shape)
        }
        before = self._wire.traffic.pushed_values
        plain = [(name, gradient) for name, gradient in gradients if name not in matrices]
        left = [(name, matrix @ self._factor(name, matrix)) for name, matrix in matrices.items()]
        means = dict(zip([name for name, _ in [*plain, *left]], self._mean([*plain, *left]), strict=True))
        bases = {name: torch.linalg.qr(means[name].nan_to_num())[0] for name in matrices}
        right = [(name, matrix.T @ bases[name]) for name, matrix in matrices.items()]
        factors = dict(zip(matrices, self._mean(right), strict=True))
        for name, matrix in matrices.items():
            product = bases[name] @ factors[name].T
            if product.isfinite().all():
                self._factors[name], self._residuals[name] = factors[name], matrix - product
            means[name] = product
        self._wire.traffic.pushed_plain_values += sum(gradient.numel() for _, gradient in plain)
        # Count the matrix's values, not those of the two factors that stand for it.
        self._wire.traffic.pushed_values = before + sum(gradient.numel() for _, gradient in gradients)
        return [means[name].view(gradient.shape) for name, gradient in gradients]

    def state_dict(self) -> dict[str, Any]:
        """Return this process's own residuals, and the factors, which all processes share."""
        return {"residuals": dict(self._residuals), "factors": dict(self._factors)}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue from `state`."""
        self._residuals = {name: value.to(device) for name, value in state["residuals"].items()}
        self._factors = {name: value.to(device) for name, value in state["factors"].items()}

    def _is_factored(self, shape: Shape) -> bool:
        if is_small(shape, self._min_values):
            return False
        rows = shape[0]
        columns = torch.Size(shape[1:]).numel()
        return self._rank * (rows + columns) < rows * columns

    def _factor(self, name: str, matrix: Tensor) -> Tensor:
        if name not in self._factors:
            # The same in every process: the seed depends only on the name.
            generator = torch.Generator().manual_seed(sum(name.encode()))
            fresh = torch.randn(matrix.shape[1], self._rank, generator=generator)
            self._factors[name] = fresh.to(matrix.device)
        return self._factors[name]

    def _mean(self, tensors: Named) -> list[Tensor]:
        return self._all_reduce.average(tensors) if tensors else []
