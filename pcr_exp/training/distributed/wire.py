"""Messages between the processes of a run, every byte counted and charged to the link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pcr_exp.training.distributed.link import Link

_LENGTH_BYTES = 8
SERVER = 0
"""The rank at which the parameter server is."""


@dataclass(slots=True)
class Traffic:
    """What one process has sent and received for its gradients and models, since the run began."""

    bytes_sent: int = 0
    bytes_received: int = 0
    pushed_values: int = 0
    """Gradient values that this process has encoded."""
    pushed_bytes: int = 0
    """And the bytes that they became, once, however many receivers there are."""
    pushed_plain_values: int = 0
    """Of the gradient values, those that went as float32 past the codec, with four bytes each."""
    pulled_values: int = 0
    """Model values that a server's messages to this process stood for."""
    pulled_bytes: int = 0
    pulled_plain_values: int = 0
    """Of the model values, those that went as float32 past the codec."""


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
        on_cpu = values.cpu()
        dist.all_reduce(on_cpu)
        self.traffic.bytes_sent += num_bytes
        self.traffic.bytes_received += num_bytes
        return on_cpu.to(values.device)

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
