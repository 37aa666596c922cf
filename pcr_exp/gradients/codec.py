"""What every gradient codec can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pcr_exp.config.components import build
from pcr_exp.config.gradients import GradientsConfig

if TYPE_CHECKING:
    from torch import Tensor


class Codec(Protocol):
    """Makes bytes of a tensor's values. Keeps nothing between tensors but, if need be, a random stream."""

    @property
    def feedback(self) -> bool:
        """Whether what a message leaves out is to be added to the tensor's next values."""

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the message, and what it will decode to.

        Args:
            values: float32 [n].

        Returns:
            uint8 [any length], and float32 [n], both on the device of `values`. Values that are not all
            finite make a message that decodes to n NaN: every process sees them, as it would have without
            a codec.
        """

    def decode(self, message: Tensor, num_values: int) -> Tensor:
        """Return float32 [num_values], bit for bit what the encoder said.

        Raises:
            GradientError: the message does not hold so many values.
        """


def open_codec(config: GradientsConfig, seed: int) -> Codec:
    """Open the codec that is registered for these settings; `seed` is for what it draws at random.

    The seed must differ between senders, so that their errors average out.

    Raises:
        ConfigError: no codec has such settings; or `powersgd`, which makes no messages.
    """
    codec: Codec = build("gradients", config, seed)
    return codec
