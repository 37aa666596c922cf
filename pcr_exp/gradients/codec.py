"""What every gradient codec can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from pcr_exp.config.check import require
from pcr_exp.config.components import build, register
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.errors import ConfigError

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


@dataclass(kw_only=True, slots=True)
class PowerSGDConfig(GradientsConfig):
    """PowerSGD, which is no codec but a way of averaging: `pcr_exp.training.distributed.powersgd`."""

    name: str = "powersgd"
    rank: int = 2
    """Columns of the two factors that stand for a matrix."""

    def __post_init__(self) -> None:
        GradientsConfig.__post_init__(self)
        require(self.rank >= 1, "gradients.rank", self.rank, "at least 1")
        require(
            self.mode == "ddp", "gradients.mode", self.mode, "ddp: PowerSGD needs sums over all processes"
        )


@register("gradients", "powersgd", PowerSGDConfig)
def no_codec(config: PowerSGDConfig, seed: int) -> NoReturn:  # noqa: ARG001
    """PowerSGD makes sums of factors and no messages. Raises ConfigError, always."""
    raise ConfigError(
        f"gradients={config.name} is a way of averaging and has no codec that turns gradients into messages: "
        "processes that exchange messages want another of the gradients group, such as gradients=threelc."
    )
