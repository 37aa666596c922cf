"""Encode a model's gradients tensor by tensor: large ones by a codec, small ones uncompressed.

The error of a codec's message is added to the tensor's next values: error accumulation (3LC, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from pcr_exp.gradients.codec import Codec, bundle, unbundle
from pcr_exp.gradients.compared import Floats, TernaryStochastic


class Feedback:
    """The sender of one tensor: a codec, and the accumulated error (residual) of its messages."""

    def __init__(self, codec: Codec) -> None:
        """Start without a residual. Codecs without feedback are passed through."""
        self.codec = codec
        self.residual: Tensor | None = None
        """float32 [n]; None before the first message, and always for a codec without feedback."""

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the message, and the values that it will decode to.

        For finite values, sent + new residual = values + old residual, exactly for 3LC and otherwise up to
        float32 rounding. If the sum is not finite, the message decodes to NaN and the residual does not
        change: one bad update is lost, not all that follow.

        Args:
            values: float32 [n], the same n every time; not changed.
        """
        if not self.codec.feedback:
            return self.codec.encode(values)
        total = values.clone() if self.residual is None else values + self.residual
        message, sent = self.codec.encode(total)
        # By the codec contract, either all values are NaN or none is.
        if not (len(sent) and math.isnan(sent[0])):
            self.residual = total.sub_(sent)
        return message, sent


Named = Sequence[tuple[str, Tensor]]
Shape = Sequence[int]


def is_small(shape: Shape, min_values: int) -> bool:
    """Return whether a tensor is sent uncompressed: under two dimensions (norms, biases), or few values."""
    return len(shape) < 2 or math.prod(shape) < min_values


class TensorCodec:
    """One sender's encoder, with a codec and residual for each tensor, and a decoder for any sender."""

    def __init__(self, open_codec: Callable[[str], Codec], min_values: int) -> None:
        """Compress tensors of at least `min_values` values; `open_codec` opens a codec by tensor name."""
        self._open_codec = open_codec
        self._min_values = min_values
        self._senders: dict[str, Feedback] = {}
        self._decoder = open_codec("")
        self._plain = Floats(torch.float32)

    def encode(self, tensors: Named) -> tuple[Tensor, list[Tensor]]:
        """Return the bytes of all tensors, and the float32 values that each decodes to, in its shape.

        Args:
            tensors: One or more (name, values) pairs, with values of any shape and floating-point type.
                Residuals are stored by name.
        """
        flat = [tensor.detach().reshape(-1).to(torch.float32) for _, tensor in tensors]
        small = [is_small(tensor.shape, self._min_values) for _, tensor in tensors]
        # Small tensors are sent as one: an operation on each would cost more than moving its data.
        message, arrived = self._plain.encode(torch.cat([flat[0][:0], *compress(flat, small)]))
        plain = iter(arrived.split([len(values) for values in compress(flat, small)]))
        messages, sent = [message], []
        for (name, tensor), values, is_plain in zip(tensors, flat, small, strict=True):
            if is_plain:
                arrived = next(plain)
            else:
                message, arrived = self._sender(name).encode(values)
                messages.append(message)
            sent.append(arrived.view(tensor.shape))
        return bundle(messages), sent

    def decode(self, data: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        """Return the float32 tensors that a sender's `encode` put into `data`.

        Raises:
            GradientError: the bytes do not encode tensors of these shapes.
        """
        sizes = [math.prod(shape) for shape in shapes]
        small = [is_small(shape, self._min_values) for shape in shapes]
        first, *coded = unbundle(data, 1 + small.count(False))
        plain_sizes = list(compress(sizes, small))
        plain = iter(self._plain.decode(first, sum(plain_sizes)).split(plain_sizes))
        messages = iter(coded)
        return [
            (next(plain) if is_plain else self._decoder.decode(next(messages), size)).view(tuple(shape))
            for shape, size, is_plain in zip(shapes, sizes, small, strict=True)
        ]

    def num_plain(self, shapes: Sequence[Shape]) -> int:
        """Return how many values of tensors of these shapes are sent uncompressed, as float32."""
        return sum(math.prod(shape) for shape in shapes if is_small(shape, self._min_values))

    def state_dict(self) -> dict[str, dict[str, Tensor | None]]:
        """Return each large tensor's residual, and the state of its random generator if the codec has one."""
        return {
            name: {"residual": sender.residual, "lots": _random_state(sender.codec)}
            for name, sender in self._senders.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]], device: torch.device) -> None:
        """Continue from `state`, with residuals on `device`."""
        self._senders = {}
        for name, saved in state.items():
            sender = self._sender(name)
            if saved["residual"] is not None:
                sender.residual = saved["residual"].to(device)
            if isinstance(sender.codec, TernaryStochastic):
                sender.codec.generator.set_state(saved["lots"])

    def _sender(self, name: str) -> Feedback:
        if name not in self._senders:
            self._senders[name] = Feedback(self._open_codec(name))
        return self._senders[name]


def _random_state(codec: Codec) -> Tensor | None:
    return codec.generator.get_state() if isinstance(codec, TernaryStochastic) else None
