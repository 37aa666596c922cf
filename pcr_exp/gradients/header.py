"""The float32 numbers that a message begins with."""

from __future__ import annotations

import torch
from torch import Tensor

from pcr_exp.errors import GradientError

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
