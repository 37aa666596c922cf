"""The messages of many tensors in one: each with its length before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pcr_exp.errors import GradientError
from pcr_exp.system.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_LENGTH_BYTES = 4


def bundle(messages: Sequence[Tensor]) -> Tensor:
    """Return uint8: for each message its length in four bytes, then itself."""
    parts = []
    for message in messages:
        length = torch.tensor([len(message)], dtype=torch.int32).view(torch.uint8)
        parts += [length.to(message.device), message]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def unbundle(data: Tensor, num_messages: int) -> list[Tensor]:
    """Undo `bundle`; the messages are views.

    Raises:
        GradientError: the lengths do not add up to the bytes that are there.
    """
    messages = []
    place = 0
    for _ in range(num_messages):
        start = place + _LENGTH_BYTES
        length = int(data[place:start].clone().view(torch.int32)) if start <= len(data) else 0
        place = start + length
        messages.append(data[start:place])
    if place != len(data):
        raise GradientError(
            f"a bundle of {len(data)} bytes: its {num_messages} messages take {place}. Processes of one run "
            "need the same version and the same gradients= settings."
        )
    return messages


_NUM_BYTES = 4


def joined(numbers: list[float], payload: Tensor) -> Tensor:
    """Return uint8: the numbers, as float32 in the machine's byte order, and the payload's bytes."""
    header = torch.tensor(numbers, dtype=torch.float32).view(torch.uint8).to(payload.device)
    return torch.cat([header, payload])


def parted(message: Tensor, num_numbers: int) -> tuple[list[float], Tensor]:
    """Undo `joined`.

    Raises:
        GradientError: the message is too short for its header.
    """
    size = _NUM_BYTES * num_numbers
    if len(message) < size:
        raise GradientError(f"a gradient message of {len(message)} bytes: wanted a header of {size}.")
    return message[:size].cpu().clone().view(torch.float32).tolist(), message[size:]
