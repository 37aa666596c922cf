"""Error accumulation: what a message leaves out is added to the tensor's next values (3LC, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pcr_exp.gradients.codec import Codec


class Feedback:
    """A codec and what it has left out so far, by the tensor's name."""

    def __init__(self, codec: Codec) -> None:
        """Begin with nothing left out. Codecs without feedback are passed through."""
        self.codec = codec
        self._residuals: dict[str, Tensor] = {}

    def encode(self, name: str, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the message, and what it will decode to.

        For finite values, sent + new residual = values + old residual, exactly for 3LC and else up to
        float32's rounding. If the sum is not finite, the message says so and the residual stays as it was:
        one bad update is lost, not all that follow.

        Args:
            name: Whose residual to use; a name stands for tensors of one size.
            values: float32 [n]; not changed.
        """
        if not self.codec.feedback:
            return self.codec.encode(values)
        residual = self._residuals.get(name)
        if residual is None:
            residual = torch.zeros_like(values)
        total = values + residual
        message, sent = self.codec.encode(total)
        if not sent.isnan().any():
            self._residuals[name] = total.sub_(sent)
        return message, sent

    def residual(self, name: str) -> Tensor | None:
        """Return what the tensor's messages have left out, float32 [n]; None before the first."""
        return self._residuals.get(name)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all residuals."""
        return dict(self._residuals)

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from `state`, on `device`."""
        self._residuals = {name: residual.to(device) for name, residual in state.items()}
