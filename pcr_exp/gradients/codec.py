"""The interface of gradient codecs, and the layout of their messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol

from pcr_exp.config.check import at_least, require
from pcr_exp.config.components import build, register
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.errors import ConfigError, GradientError
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class Codec(Protocol):
    """Encodes a tensor's values as bytes. Has no state between tensors, except perhaps a random generator."""

    @property
    def feedback(self) -> bool:
        """Whether the error of a message must be added to the tensor's next values."""

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the message, and the values that it will decode to.

        Args:
            values: float32 [n].

        Returns:
            uint8 [any length], and float32 [n], both on the device of `values`. If any value is not finite,
            the message decodes to n NaN: every process sees the failure, as it would without a codec.
        """

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """Return float32 [num_values], bit-identical to the values that `encode` returned.

        Raises:
            GradientError: the message does not contain `num_values` values.
        """


def open_codec(config: GradientsConfig, seed: int) -> Codec:
    """Open the codec that is registered for these settings; `seed` initialises its random generator.

    The seed must differ between senders, so that their errors average out.

    Raises:
        ConfigError: no codec has such settings, or they are those of `powersgd`, which makes no messages.
    """
    codec: Codec = build("gradients", config, seed)
    return codec


@dataclass(kw_only=True, slots=True)
class PowerSGDConfig(GradientsConfig):
    """PowerSGD, a way of averaging rather than a codec: see `pcr_exp.training.distributed.ddp`."""

    name: str = "powersgd"
    rank: Annotated[int, at_least(1)] = 2
    """Number of columns of the two factors that approximate a matrix."""

    def __post_init__(self) -> None:
        GradientsConfig.__post_init__(self)
        require(
            self.mode == "ddp", "gradients.mode", self.mode, "ddp: PowerSGD needs sums over all processes"
        )


@register("gradients", "powersgd", PowerSGDConfig)
def no_codec(config: PowerSGDConfig, seed: int) -> NoReturn:  # noqa: ARG001
    """Raise ConfigError, always: PowerSGD averages factors and makes no messages."""
    raise ConfigError(
        f"gradients={config.name} averages gradients and has no codec that turns them into messages. Where "
        "processes exchange messages, use another option of the gradients group, such as gradients=threelc."
    )


_LENGTH_BYTES = 4


def bundle(messages: Sequence[Tensor]) -> Tensor:
    """Return uint8: the lengths of all messages, four bytes each, then the messages (at least one)."""
    lengths = torch.tensor([len(message) for message in messages], dtype=torch.int32).view(torch.uint8)
    return torch.cat([lengths.to(messages[0].device), *messages])


def unbundle(data: Tensor, num_messages: int) -> list[Tensor]:
    """Undo `bundle`; the messages are views.

    Raises:
        GradientError: the lengths do not add up to the length of `data`.
    """
    start = _LENGTH_BYTES * num_messages
    lengths = data[:start].clone().view(torch.int32).tolist() if start <= len(data) else []
    end = start + sum(lengths)
    if end != len(data) or min(lengths) < 0:
        raise GradientError(
            f"a bundle of gradient messages has {len(data)} bytes, but its {num_messages} messages need "
            f"{end}. Processes of one run need the same version and the same gradients= settings."
        )
    return list(data[start:].split(lengths))


_NUM_BYTES = 4


def joined(numbers: list[float], payload: Tensor) -> Tensor:
    """Return uint8: the numbers, as float32 in the machine's byte order, and the payload's bytes."""
    header = torch.tensor(numbers, dtype=torch.float32).view(torch.uint8).to(payload.device)
    return torch.cat([header, payload])


def nan_message(values: Tensor, num_numbers: int) -> tuple[Tensor, Tensor]:
    """Return a message of `num_numbers` NaN without payload, and its decoded values: NaN for each value."""
    nothing = values.new_empty(0, dtype=torch.uint8)
    return joined([math.nan] * num_numbers, nothing), torch.full_like(values, math.nan)


def nan_values(message: Tensor, num_values: int) -> Tensor:
    """Return the values that a `nan_message` decodes to."""
    return torch.full((num_values,), math.nan, device=message.device)


def parted(message: Tensor, num_numbers: int) -> tuple[list[float], Tensor]:
    """Undo `joined`.

    Raises:
        GradientError: the message is too short for its header.
    """
    size = _NUM_BYTES * num_numbers
    if len(message) < size:
        raise GradientError(f"a gradient message of {len(message)} bytes: wanted a header of {size}.")
    return message[:size].cpu().clone().view(torch.float32).tolist(), message[size:]
