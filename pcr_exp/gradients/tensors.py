"""A model's gradients, tensor by tensor: the large ones through a codec, the small ones as they are.

What a codec's message leaves out is added to the tensor's next values: error accumulation (3LC, section 3.1).
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
    """The sender of one tensor: a codec, and what its messages have left out so far."""

    def __init__(self, codec: Codec) -> None:
        """Begin with nothing left out. Codecs without feedback are passed through."""
        self.codec = codec
        self.residual: Tensor | None = None
        """float32 [n]; None before the first message, and always for a codec without feedback."""

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the message, and what it will decode to.

        For finite values, sent + new residual = values + old residual, exactly for 3LC and else up to
        float32's rounding. If the sum is not finite, the message says so and the residual stays as it was:
        one bad update is lost, not all that follow.

        Args:
            values: float32 [n], the same n every time; not changed.
        """
        if not self.codec.feedback:
            return self.codec.encode(values)
        total = values.clone() if self.residual is None else values + self.residual
        message, sent = self.codec.encode(total)
        # By a codec's contract all of it is NaN, or nothing.
        if not (len(sent) and math.isnan(sent[0])):
            self.residual = total.sub_(sent)
        return message, sent


Named = Sequence[tuple[str, Tensor]]
Shape = Sequence[int]


def is_small(shape: Shape, min_values: int) -> bool:
    """Whether a tensor stays uncompressed: fewer than two dimensions (norms, biases), or few values."""
    return len(shape) < 2 or math.prod(shape) < min_values


class TensorCodec:
    """One sender's codecs with their residuals, one for each tensor, and any receiver's decoder."""

    def __init__(self, open_codec: Callable[[str], Codec], min_values: int) -> None:
        """Compress tensors from this size on; `open_codec` makes the codec of a tensor by its name."""
        self._open_codec = open_codec
        self._min_values = min_values
        self._senders: dict[str, Feedback] = {}
        self._decoder = open_codec("")
        self._plain = Floats(torch.float32)

    def encode(self, tensors: Named) -> tuple[Tensor, list[Tensor]]:
        """Return the bytes of all tensors, and what each decodes to, in its shape and float32.

        Args:
            tensors: One or more: names, by which residuals are kept, and values of any shape and
                floating-point type.
        """
        flat = [tensor.detach().reshape(-1).to(torch.float32) for _, tensor in tensors]
        small = [is_small(tensor.shape, self._min_values) for _, tensor in tensors]
        # Small tensors are sent as one: an operation on each would cost more than what it moves.
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
        """Return the tensors of a sender whose `encode` made `data`, float32.

        Raises:
            GradientError: the bytes are not of tensors of these shapes.
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
        """Return how many values of tensors of these shapes go past the codec, as float32."""
        return sum(math.prod(shape) for shape in shapes if is_small(shape, self._min_values))

    def state_dict(self) -> dict[str, dict[str, Tensor | None]]:
        """Return each large tensor's residual, and the state of its random stream if the codec draws."""
        return {
            name: {"residual": sender.residual, "lots": _random_state(sender.codec)}
            for name, sender in self._senders.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]], device: torch.device) -> None:
        """Go on from `state`, on `device`."""
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
