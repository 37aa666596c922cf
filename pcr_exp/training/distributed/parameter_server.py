"""A parameter server: processes push gradients and pull model changes (3LC, section 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pcr_exp.gradients.tensors import TensorCodec
from pcr_exp.training.distributed.ddp import mean_of
from pcr_exp.training.distributed.exchange import (
    Wire,
    WireExchange,
    require_gradients,
    trained_parameters,
)
from pcr_exp.training.distributed.processes import Processes

Parameters = dict[str, nn.Parameter]


class Server:
    """The model at full precision, and the changes that the workers' copies still lack.

    It compresses model changes once; all workers decode the same bytes.
    """

    def __init__(self, parameters: Parameters, codec: TensorCodec) -> None:
        """Begin with the workers' weights; `parameters` is the copy of the worker in this process."""
        self.weights = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        self._parameters = parameters
        self._codec = codec

    def update(self, pushed: list[Tensor], take: Callable[[], None]) -> Tensor:
        """Step the model with the mean of the workers' gradients; return the message with the change.

        Args:
            pushed: Every worker's message.
            take: Takes the optimizer's step on `parameters` and their gradients.
        """
        parameters = list(self._parameters.values())
        shapes, device = [parameter.shape for parameter in parameters], parameters[0].device
        means = mean_of([self._codec.decode(message.to(device), shapes) for message in pushed])
        before = {name: weight.clone() for name, weight in self.weights.items()}
        with self.in_place():
            for parameter, mean in zip(parameters, means, strict=True):
                parameter.grad = mean.to(parameter.dtype)
            take()
        changes = [(name, weight - before[name]) for name, weight in self.weights.items()]
        return self._codec.encode(changes)[0]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give this process's model the server's weights within the context."""
        copies = {name: parameter.data for name, parameter in self._parameters.items()}
        for name, parameter in self._parameters.items():
            parameter.data = self.weights[name]
        try:
            yield
        finally:
            for name, parameter in self._parameters.items():
                parameter.data = copies[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, and the changes that the workers lack."""
        return {"weights": dict(self.weights), "pulls": self._codec.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue from `state`."""
        for name, weight in self.weights.items():
            weight.copy_(state["weights"][name])
        self._codec.load_state_dict(state["pulls"], device)


class ServerExchange(WireExchange):
    """A worker, and in the first process also the server. The optimizer runs at the server only.

    Each process keeps its own running statistics of normalisation layers. The first one's are evaluated,
    together with the server's weights.
    """

    def __init__(self, processes: Processes, wire: Wire, push: TensorCodec, pull: TensorCodec) -> None:
        """Encode gradients with `push`; `pull` is the server's encoder and every worker's decoder."""
        super().__init__(processes, wire)
        self._push = push
        self._pull = pull
        self._parameters: Parameters = {}
        self._server: Server | None = None

    def attach(self, model: nn.Module) -> nn.Module:
        """See `Exchange.attach`."""
        self._parameters = trained_parameters(model)
        self._server = Server(self._parameters, self._pull) if self._processes.first else None
        return model

    def step(self, take: Callable[[], None]) -> None:
        """Push gradients, let the server take the step, and pull the change.

        Raises:
            ConfigError: a parameter has no gradient, which a server cannot tell from zeros.
        """
        require_gradients(self._parameters, "server")
        gradients = [(n, p.grad) for n, p in self._parameters.items() if p.grad is not None]
        message, _ = self._push.encode(gradients)
        shapes = [gradient.shape for _, gradient in gradients]
        num_values, num_plain = sum(map(math.prod, shapes)), self._push.num_plain(shapes)
        pushed = self._wire.push(message)
        change = self._server.update(pushed, take) if self._server is not None else None
        pulled = self._wire.pull(change)
        traffic = self.traffic
        traffic.pushed_values += num_values
        traffic.pushed_bytes += len(message)
        traffic.pushed_plain_values += num_plain
        traffic.pulled_values += num_values
        traffic.pulled_bytes += len(pulled)
        traffic.pulled_plain_values += num_plain
        changes = self._pull.decode(pulled.to(gradients[0][1].device), shapes)
        with torch.no_grad():
            for parameter, moved in zip(self._parameters.values(), changes, strict=True):
                parameter.add_(moved)

    def from_updater(self, value: Callable[[], float]) -> float:
        """See `Exchange.from_updater`."""
        return self._processes.from_first(value)

    def global_weights(self) -> AbstractContextManager[None]:
        """See `Exchange.global_weights`."""
        return self._server.in_place() if self._server is not None else nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """See `Exchange.state_dict`."""
        server = self._server.state_dict() if self._server is not None else None
        return {"push": self._push.state_dict(), "server": server, "wire": self._wire.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Exchange.load_state_dict`."""
        device = next(iter(self._parameters.values())).device
        self._push.load_state_dict(state["push"], device)
        if self._server is not None:
            self._server.load_state_dict(state["server"], device)
        self._wire.load_state_dict(state["wire"])
