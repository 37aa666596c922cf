"""The mean of all processes' gradients, the same bits in every process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from pcr_exp.gradients.tensors import Named, TensorCodec
from pcr_exp.training.distributed.wire import Wire


class Averaging(Protocol):
    """A way to average."""

    def average(self, gradients: Named) -> list[Tensor]:
        """Return the mean over all processes of each tensor, in its shape.

        All processes give tensors of the same names and shapes in the same order.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what has been left out so far."""

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Go on from `state`."""


class AllReduce:
    """Sums in one floating-point type: float32 is plain data-parallel training."""

    def __init__(self, wire: Wire, dtype: torch.dtype) -> None:
        """Send in this type. A process divides before it sends, so that a sum of 16 bits overflows later."""
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

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: nothing is left out."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Do nothing."""


class AllGather:
    """Every process's message to every other: for codecs whose messages cannot be added up."""

    def __init__(self, wire: Wire, codec: TensorCodec) -> None:
        """Send what `codec` encodes."""
        self._wire = wire
        self._codec = codec

    def average(self, gradients: Named) -> list[Tensor]:
        """See `Averaging.average`. Every process adds in the order of ranks: equal bits everywhere."""
        message, _ = self._codec.encode(gradients)
        traffic = self._wire.traffic
        traffic.pushed_values += sum(gradient.numel() for _, gradient in gradients)
        traffic.pushed_plain_values += self._codec.num_plain([gradient.shape for _, gradient in gradients])
        traffic.pushed_bytes += len(message)
        device = gradients[0][1].device
        return mean_of_messages(self._codec, self._wire.all_gather(message), gradients, device)

    def state_dict(self) -> dict[str, Any]:
        """See `TensorCodec.state_dict`."""
        return self._codec.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """See `TensorCodec.load_state_dict`."""
        self._codec.load_state_dict(state, device)


def mean_of_messages(
    codec: TensorCodec, messages: list[Tensor], like: Named, device: torch.device
) -> list[Tensor]:
    """Decode one message per process, in order, and return the mean of each tensor."""
    shapes = [tensor.shape for _, tensor in like]
    totals = codec.decode(messages[0].to(device), shapes)
    for message in messages[1:]:
        for total, decoded in zip(totals, codec.decode(message.to(device), shapes), strict=True):
            total.add_(decoded)
    return [total.div_(len(messages)) for total in totals]
