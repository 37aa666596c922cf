"""How the processes of a run tell each other their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from pcr_exp.config.check import require
from pcr_exp.config.components import component_of, names, register
from pcr_exp.errors import ConfigError


@dataclass(kw_only=True, slots=True)
class GradientsConfig:
    """What travels between processes, and which way; a codec that has settings of its own adds them."""

    name: str = "none"
    """The codec, as it is registered."""
    mode: str = "ddp"
    """`ddp`: every process sends its gradients to all, all take the same step. `server`: processes push
    gradients to a parameter server (the first of them), which pulls them along by sending model changes."""
    min_values: int = 256
    """Smaller tensors are sent as float32, as are all with fewer than two dimensions (norms, biases)."""

    def __post_init__(self) -> None:
        known = names("gradients")
        require(self.name in known, "gradients.name", self.name, ", ".join(known))
        component_of("gradients", self)  # refuses a name with the settings of another codec
        require(self.mode in ("ddp", "server"), "gradients.mode", self.mode, "ddp or server")
        require(self.min_values >= 0, "gradients.min_values", self.min_values, "0 or more")


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
