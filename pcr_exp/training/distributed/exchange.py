"""How gradients become the step that all processes take."""

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
from pcr_exp.training.distributed.processes import Processes

_BYTES_PER_MBIT = 1e6 / 8


class Link:
    """Makes a sender wait as long as its bytes would take; loopback then delivers them at once.

    Every process has a link of its own, of the same bandwidth in both directions at the same time. What
    arrives at a receiver from several senders at once queues on its link: `queue` is that receiver's wait.
    """

    def __init__(
        self,
        config: NetworkConfig,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a link that is free. `now` and `sleep` are in seconds."""
        self.bytes_per_s = (config.bandwidth_mbit_per_s or math.inf) * _BYTES_PER_MBIT
        self.latency_s = config.latency_ms / 1e3
        self.waited_s = 0.0
        """Seconds that this process has waited for its link."""
        self._now = now
        self._sleep = sleep
        self._overslept_s = 0.0

    def send(self, num_bytes: int, num_hops: int = 1) -> None:
        """Wait for `num_hops` messages after each other, of `num_bytes` together, to be delivered."""
        self._wait(num_hops * self.latency_s + num_bytes / self.bytes_per_s)

    def queue(self, num_bytes: int) -> None:
        """Wait for bytes that came while the link was busy with others."""
        self._wait(num_bytes / self.bytes_per_s)

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self.waited_s += seconds
        # The scheduler woke this process late after its last wait, which is not the network's doing.
        due = self._now() + seconds - self._overslept_s
        while (left := due - self._now()) > 0:
            self._sleep(left)
        self._overslept_s = min(-left, seconds)


_LENGTH_BYTES = 8

SERVER = 0
"""The rank at which the parameter server is."""


@dataclass(slots=True)
class Traffic:
    """Values and bytes of gradients and models that one process has sent and received since the run began."""

    bytes_sent: int = 0
    bytes_received: int = 0
    pushed_values: int = 0
    """Gradient values that this process has encoded."""
    pushed_bytes: int = 0
    """And the bytes that they became, once, however many receivers there are."""
    pushed_plain_values: int = 0
    """Gradient values that went past the codec as float32, four bytes each."""
    pulled_values: int = 0
    """Model values that a server's messages to this process stood for."""
    pulled_bytes: int = 0
    pulled_plain_values: int = 0
    """Model values that went past the codec as float32."""


class Wire:
    """The process group, seen from one process. All processes call the same methods in the same order.

    Counted is the payload of the TCP connections: what the processes hand to gloo, with a length of eight
    bytes before each message. Messages go straight from each sender to each receiver.
    """

    def __init__(self, link: Link) -> None:
        """Send over `link`; the default process group is open."""
        self.link = link
        self.traffic = Traffic()
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._has_nccl = "nccl" in dist.get_backend_config()

    def all_gather(self, message: Tensor) -> list[Tensor]:
        """Return every process's message, uint8 of any lengths, by rank."""
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        self._charge_sending(message, len(others))
        received = self._exchange(message, send_to=others, receive_from=others)
        return [message.cpu() if rank == self.rank else received[rank] for rank in range(self.world_size)]

    def push(self, message: Tensor) -> list[Tensor]:
        """Send a message to the server. Return all of them, by rank, at the server; nothing elsewhere."""
        if self.rank != SERVER:
            self._charge_sending(message, 1)
            self._exchange(message, send_to=[SERVER], receive_from=[])
            return []
        workers = range(1, self.world_size)
        received = self._exchange(message, send_to=[], receive_from=list(workers))
        sizes = [len(received[rank]) + _LENGTH_BYTES for rank in workers]
        # The first comes at its sender's pace; the others stand in line behind it.
        self.link.queue(sum(sizes) - max(sizes))
        return [message.cpu(), *(received[rank] for rank in workers)]

    def pull(self, message: Tensor | None) -> Tensor:
        """Send the server's message to all; return it everywhere. Others than the server give None."""
        if message is None:
            return self._exchange(None, send_to=[], receive_from=[SERVER])[SERVER]
        self._charge_sending(message, self.world_size - 1)
        self._exchange(message, send_to=list(range(1, self.world_size)), receive_from=[])
        return message.cpu()

    def all_reduce(self, values: Tensor) -> Tensor:
        """Return the sum of every process's values, bit for bit the same everywhere.

        In a ring, as gloo does it, a process sends each of W parts 2 (W - 1) times.
        """
        num_hops = 2 * (self.world_size - 1)
        num_bytes = num_hops * values.nbytes // self.world_size
        self.link.send(num_bytes, num_hops)
        # NCCL takes what lies on a GPU; gloo would copy it there and back by itself, more slowly.
        summed = values.clone() if self._has_nccl and values.is_cuda else values.cpu()
        dist.all_reduce(summed)
        self.traffic.bytes_sent += num_bytes
        self.traffic.bytes_received += num_bytes
        return summed.to(values.device)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, as plain numbers."""
        return {"traffic": asdict(self.traffic), "waited_s": self.link.waited_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Count on from `state`."""
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
        # Receive first: gloo tells a sender that its receiver is ready over the connection that takes the
        # receiver's own data. Said after them, the two would send one after the other. No empty tensors.
        pending += [dist.irecv(other, rank) for rank, other in received.items() if len(other)]
        if len(data):
            pending += [dist.isend(data, rank) for rank in send_to]
        for work in pending:
            _finish(work)
        self.traffic.bytes_received += sum(len(other) + _LENGTH_BYTES for other in received.values())
        return received


def _finish(work: dist.Work | None) -> None:
    assert work is not None, "a rank of another process group was asked"
    work.wait()


class Exchange:
    """The other processes, as a trainer uses them. As it is, there are none, and nothing is sent."""

    @property
    def traffic(self) -> Traffic | None:
        """The traffic so far; None where there is nobody to send to."""
        return None

    @property
    def network_s(self) -> float:
        """Seconds that this process has waited for a throttled network since the run began."""
        return 0.0

    def attach(self, model: nn.Module) -> nn.Module:
        """Return what is to be called in training instead of `model`, which it shares its parameters with."""
        return model

    def kept_here(self) -> AbstractContextManager[None]:
        """Within, gradients are added to this process's own, and nothing is sent: more will follow."""
        return nullcontext()

    def mean(self, loss: float) -> float:
        """Return the mean over all processes, so that all agree whether it is finite."""
        return loss

    def step(self, take: Callable[[], None]) -> None:
        """Let the optimizer take its step, once gradients are there; every process's model moves alike."""
        take()

    def global_weights(self) -> AbstractContextManager[None]:
        """Within, the first process's model has the weights that the optimizer moves."""
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that steps change beside model and optimizer."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""


class WireExchange(Exchange):
    """One of several processes, which send over a wire."""

    def __init__(self, processes: Processes, wire: Wire) -> None:
        self._processes = processes
        self._wire = wire

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
