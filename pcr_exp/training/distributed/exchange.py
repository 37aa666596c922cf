"""How gradients become the step that all processes take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import nn

from pcr_exp.training.distributed.wire import Traffic


class Exchange(Protocol):
    """What a trainer asks of the other processes."""

    @property
    def traffic(self) -> Traffic | None:
        """What has been sent so far; None where there is nobody to send to."""

    @property
    def network_s(self) -> float:
        """Seconds that this process has waited for a throttled network since the run began."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Return what is to be called in training instead of `model`, which it shares its parameters with."""

    def kept_here(self) -> AbstractContextManager[None]:
        """Within, gradients are added to this process's own, and nothing is sent: more will follow."""

    def mean(self, loss: float) -> float:
        """Return the mean over all processes, so that all agree whether it is finite."""

    def step(self, take: Callable[[], None]) -> None:
        """Let the optimizer take its step, once gradients are there; every process's model moves alike."""

    def global_weights(self) -> AbstractContextManager[None]:
        """Within, the first process's model has the weights that the optimizer moves."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that steps change beside model and optimizer."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""


class NoExchange:
    """One process, which tells nobody anything."""

    traffic: Traffic | None = None
    network_s = 0.0

    def attach(self, model: nn.Module) -> nn.Module:
        """Return the model itself."""
        return model

    def kept_here(self) -> AbstractContextManager[None]:
        """Change nothing."""
        return nullcontext()

    def mean(self, loss: float) -> float:
        """Return the loss itself."""
        return loss

    def step(self, take: Callable[[], None]) -> None:
        """Take the step."""
        take()

    def global_weights(self) -> AbstractContextManager[None]:
        """Change nothing: there is one model."""
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""
