"""Exchange of gradients between processes, so that all take the same step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.distributed.processes import Processes

_BYTES_PER_MBIT = 1e6 / 8


class Link:
    """A simulated link: senders wait as long as their bytes would take, then loopback delivers at once.

    Every process has its own full-duplex link, with the same bandwidth in both directions. Messages from
    several senders at once queue on the receiver's link: `queue` is the receiver's wait.
    """

    def __init__(
        self,
        config: NetworkConfig,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create an idle link. `now` and `sleep` are in seconds."""
        self.bytes_per_s = (config.bandwidth_mbit_per_s or math.inf) * _BYTES_PER_MBIT
        self.latency_s = config.latency_ms / 1e3
        self.waited_s = 0.0
        """Seconds that this process has waited for its link."""
        self._now = now
        self._sleep = sleep
        self._overslept_s = 0.0

    def send(self, num_bytes: int, num_hops: int = 1) -> None:
        """Wait until `num_hops` consecutive messages, of `num_bytes` in total, are delivered."""
        self._wait(num_hops * self.latency_s + num_bytes / self.bytes_per_s)

    def queue(self, num_bytes: int) -> None:
        """Wait for bytes that arrived while the link was busy with others."""
        self._wait(num_bytes / self.bytes_per_s)

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self.waited_s += seconds
        # The scheduler woke this process late after its last wait; that delay is not the network's.
        due = self._now() + seconds - self._overslept_s
        while (left := due - self._now()) > 0:
            self._sleep(left)
        self._overslept_s = min(-left, seconds)


_LENGTH_BYTES = 8

SERVER = 0
"""Rank of the parameter server."""


@dataclass(slots=True)
class Traffic:
    """Values and bytes of gradients and models that one process has sent and received since the run began."""

    bytes_sent: int = 0
    bytes_received: int = 0
    pushed_values: int = 0
    """Gradient values that this process has encoded."""
    pushed_bytes: int = 0
    """Their encoded bytes, counted once for any number of receivers."""
    pushed_plain_values: int = 0
    """Gradient values that bypassed the codec as float32, four bytes each."""
    pulled_values: int = 0
    """Model values in the server's messages to this process."""
    pulled_bytes: int = 0
    pulled_plain_values: int = 0
    """Model values that bypassed the codec as float32."""


class Wire:
    """The process group, seen from one process. All processes call the same methods in the same order.

    Traffic is the payload of the TCP connections: the data handed to gloo, with a length of eight bytes
    before each message. Messages go directly from each sender to each receiver.
    """

    def __init__(self, link: Link) -> None:
        """Send over `link`; the default process group must be open."""
        self.link = link
        self.traffic = Traffic()
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._has_nccl = "nccl" in dist.get_backend_config()

    def all_gather(self, message: Tensor) -> list[Tensor]:
        """Return every process's message by rank; messages are uint8 of any lengths."""
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        self._charge_sending(message, len(others))
        received = self._exchange(message, send_to=others, receive_from=others)
        return [message.cpu() if rank == self.rank else received[rank] for rank in range(self.world_size)]

    def push(self, message: Tensor) -> list[Tensor]:
        """Send a message to the server. Return all messages by rank there, and an empty list elsewhere."""
        if self.rank != SERVER:
            self._charge_sending(message, 1)
            self._exchange(message, send_to=[SERVER], receive_from=[])
            return []
        workers = range(1, self.world_size)
        received = self._exchange(message, send_to=[], receive_from=list(workers))
        sizes = [len(received[rank]) + _LENGTH_BYTES for rank in workers]
        # The largest arrives at its sender's pace; the others queue.
        self.link.queue(sum(sizes) - max(sizes))
        return [message.cpu(), *(received[rank] for rank in workers)]

    def pull(self, message: Tensor | None) -> Tensor:
        """Send the server's message to all, and return it everywhere. Other processes pass None."""
        if message is None:
            return self._exchange(None, send_to=[], receive_from=[SERVER])[SERVER]
        self._charge_sending(message, self.world_size - 1)
        self._exchange(message, send_to=list(range(1, self.world_size)), receive_from=[])
        return message.cpu()

    def all_reduce(self, values: Tensor) -> Tensor:
        """Return the sum of every process's values, bit for bit the same everywhere.

        In a ring of W processes, as gloo does it, each sends 2 (W - 1) parts of 1/W of the values.
        """
        num_hops = 2 * (self.world_size - 1)
        num_bytes = num_hops * values.nbytes // self.world_size
        self.link.send(num_bytes, num_hops)
        # NCCL reduces values on a GPU; gloo would copy them off and back by itself, more slowly.
        summed = values.clone() if self._has_nccl and values.is_cuda else values.cpu()
        dist.all_reduce(summed)
        self.traffic.bytes_sent += num_bytes
        self.traffic.bytes_received += num_bytes
        return summed.to(values.device)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain numbers."""
        return {"traffic": asdict(self.traffic), "waited_s": self.link.waited_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue counting from `state`."""
        self.traffic = Traffic(**state["traffic"])
        self.link.waited_s = state["waited_s"]

    def _charge_sending(self, message: Tensor, num_receivers: int) -> None:
        num_bytes = num_receivers * (len(message) + _LENGTH_BYTES)
        self.traffic.bytes_sent += num_bytes
        self.link.send(num_bytes)

    def _exchange(
        self, message: Tensor | None, *, send_to: list[int], receive_from: list[int]
    ) -> dict[int, Tensor]:
        lengths = {rank: torch.empty(1, dtype=torch.int64) for rank in receive_from}
        data = message.cpu().contiguous() if message is not None else torch.empty(0, dtype=torch.uint8)
        own_length = torch.tensor([len(data)])
        pending = [dist.isend(own_length, rank) for rank in send_to]
        for work in [dist.irecv(length, rank) for rank, length in lengths.items()]:
            _finish(work)
        received = {rank: data.new_empty(int(length)) for rank, length in lengths.items()}
        # Receive first: gloo signals readiness to a sender over the connection that carries the receiver's
        # own data. Behind that data, the signal would make the two send in turn. No empty tensors are sent.
        pending += [dist.irecv(other, rank) for rank, other in received.items() if len(other)]
        if len(data):
            pending += [dist.isend(data, rank) for rank in send_to]
        for work in pending:
            _finish(work)
        self.traffic.bytes_received += sum(len(other) + _LENGTH_BYTES for other in received.values())
        return received


def _finish(work: dist.Work | None) -> None:
    assert work is not None, "the rank is not in this process group"
    work.wait()


class Exchange:
    """The other processes, as a trainer uses them. This base class has none, and sends nothing."""

    @property
    def world_size(self) -> int:
        """The number of processes whose gradients are averaged."""
        return 1

    @property
    def traffic(self) -> Traffic | None:
        """The traffic so far; None if there are no other processes."""
        return None

    @property
    def network_s(self) -> float:
        """Seconds that this process has waited for a throttled network since the run began."""
        return 0.0

    def attach(self, model: nn.Module) -> nn.Module:
        """Return the module to call in training instead of `model`; both share their parameters."""
        return model

    def accumulating(self) -> AbstractContextManager[None]:
        """Accumulate gradients locally within the context and send nothing: more will follow."""
        return nullcontext()

    def mean(self, loss: float) -> float:
        """Return the mean over all processes, so that all agree whether it is finite."""
        return loss

    def step(self, take: Callable[[], None]) -> None:
        """Take the optimizer's step, once gradients are there; every process's model changes alike."""
        take()

    def from_updater(self, value: Callable[[], float]) -> float:
        """Return `value()` of a process that takes the optimizer's step."""
        return value()

    def global_weights(self) -> AbstractContextManager[None]:
        """Give the first process's model the weights that the optimizer updates, within the context."""
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that steps change besides model and optimizer."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are not frozen, by name."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def require_gradients(parameters: Mapping[str, nn.Parameter], mode: str) -> None:
    """Raise ConfigError if a parameter has no gradient, which processes can neither average nor send."""
    for name, parameter in parameters.items():
        if parameter.grad is None:
            raise ConfigError(
                f"gradients.mode={mode}: the model's parameter {name} gets no gradient. Wanted a model whose "
                "parameters all contribute to the loss, except frozen ones. Freeze the parameter in the "
                "model (requires_grad=False), or use a model without it."
            )


class WireExchange(Exchange):
    """An exchange between several processes, which send over a `Wire`."""

    def __init__(self, processes: Processes, wire: Wire) -> None:
        self._processes = processes
        self._wire = wire

    @property
    def world_size(self) -> int:
        """See `Exchange.world_size`."""
        return self._processes.world_size

    @property
    def traffic(self) -> Traffic:
        """See `Exchange.traffic`."""
        return self._wire.traffic

    @property
    def network_s(self) -> float:
        """See `Exchange.network_s`."""
        return self._wire.link.waited_s

    def mean(self, loss: float) -> float:
        """See `Exchange.mean`."""
        return self._processes.mean(loss)
