"""The object that training is given: told where updates begin and end, it keeps activations as configured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pcr_exp.activations.bounds import Bounds, LayerState
from pcr_exp.activations.codec import Codec, LosslessCodec
from pcr_exp.activations.hooks import ConvInputs, LayerTally, convolutions
from pcr_exp.activations.packed import pack
from pcr_exp.activations.recompute import RecomputedBlocks
from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.config.components import component
from pcr_exp.errors import ConfigError

LayerRow = dict[str, Any]


class Activations(Protocol):
    """What training asks of whoever keeps its activations."""

    @property
    def history(self) -> list[LayerRow]:
        """One row per layer and look; saved in checkpoints."""

    def begin(self, step: int) -> None:
        """Before the forward pass of an update, counted from 0."""

    def end(self, step: int, loss_scale: float) -> None:
        """After the optimizer's step; the loss was multiplied by `loss_scale` before backward."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that updates change."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""

    def remove(self) -> None:
        """Leave the model as it was."""


class Untracked:
    """Nothing to be told of updates: torch keeps activations itself, or blocks are computed again."""

    def __init__(self, blocks: RecomputedBlocks | None = None) -> None:
        self.history: list[LayerRow] = []
        self._blocks = blocks

    def begin(self, step: int) -> None:
        pass

    def end(self, step: int, loss_scale: float) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def remove(self) -> None:
        if self._blocks is not None:
            self._blocks.remove()


class CompressedActivations:
    """Convolution inputs through a codec; every `interval` updates the layers are looked at.

    A look writes a row per layer into `history` and, from the second on, adapts the bounds: at the first one
    the momentum is a single gradient.
    """

    def __init__(
        self, model: nn.Module, codec: Codec, config: ActivationsConfig, optimizer: torch.optim.Optimizer
    ) -> None:
        """Hook the convolutions of `model`; `optimizer` moves its parameters.

        Raises:
            ConfigError: the model has no 2d convolution, or bounds shall adapt to an optimizer that has no
                momentum.
        """
        if not convolutions(model):
            raise ConfigError(
                f"activations.name={config.name!r}: {type(model).__name__} has no 2d convolution; "
                "wanted at least one whose input to compress. Use activations=none with it."
            )
        self.history: list[LayerRow] = []
        self.bounds = Bounds(config, _momentum(config, optimizer))
        self._optimizer = optimizer
        self._interval = config.interval
        self._lossy = config.name == "error_bounded"
        self._weights = {name: conv.weight for name, conv in convolutions(model).items()}
        self._inputs = ConvInputs(model, partial(_pack, codec, self.bounds))

    def begin(self, step: int) -> None:
        self._inputs.begin(watch_gradients=self._lossy and step % self._interval == 0)

    def end(self, step: int, loss_scale: float) -> None:
        if step % self._interval:
            return
        states = {
            layer: self._state(layer, tally, loss_scale) for layer, tally in self._inputs.tallies.items()
        }
        self.history += [self._row(step, layer, states[layer]) for layer in states]
        if step and self._lossy:
            self.bounds.adapt(states, self._inputs.shared_with)

    def state_dict(self) -> dict[str, Any]:
        return {"bounds": self.bounds.state_dict(), "history": self.history}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.bounds.load_state_dict(state["bounds"])
        self.history = list(state["history"])

    def remove(self) -> None:
        self._inputs.remove()

    def _state(self, layer: str, tally: LayerTally, loss_scale: float) -> LayerState:
        buffer = self._optimizer.state.get(self._weights[layer], {}).get("momentum_buffer")
        return LayerState(
            nonzero_share=tally.nonzero_share,
            gradient_norm=tally.gradient_norm(loss_scale),
            mean_abs_gradient=tally.mean_abs_gradient(loss_scale),
            batch_size=tally.batch_size,
            mean_abs_momentum=0.0 if buffer is None else float(buffer.abs().mean()),
        )

    def _row(self, step: int, layer: str, state: LayerState) -> LayerRow:
        tally = self._inputs.tallies[layer]
        bound = self.bounds.of(layer) if self._lossy else 0.0
        return {
            "step": step,
            "layer": layer,
            "bound": bound,
            "nonzero_share": state.nonzero_share,
            "predicted_sigma": bound * self.bounds.sensitivity(state),
            "acceptable_sigma": self.bounds.acceptable_sigma(state),
            "raw_bytes": tally.raw_bytes,
            "packed_bytes": tally.packed_bytes,
            "held_bytes": tally.held_bytes,
        }


def open_activations(
    config: ActivationsConfig, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Activations:
    """Let `model` keep its activations as `config` says.

    Raises:
        ConfigError: the model or the optimizer does not suit the mode, or the codec is not installed.
    """
    if config.name == "none":
        return Untracked()
    if config.name == "recompute":
        return Untracked(RecomputedBlocks(model))
    return CompressedActivations(model, open_codec(config), config, optimizer)


def open_codec(config: ActivationsConfig) -> Codec:
    """Return the codec of `lossless` or `error_bounded`.

    Raises:
        ConfigError: it is not installed.
    """
    if config.name == "lossless":
        return LosslessCodec()
    codec: Codec = component("activations.codec", config.codec).build(config)
    return codec


def _pack(codec: Codec, bounds: Bounds, layer: str, values: Tensor) -> Any:
    return pack(values, codec, bounds.of(layer))


def _momentum(config: ActivationsConfig, optimizer: torch.optim.Optimizer) -> float:
    adapts = config.name == "error_bounded" and config.bounds == "adaptive"
    momentum = optimizer.defaults.get("momentum", 0.0) if isinstance(optimizer, torch.optim.SGD) else 0.0
    if adapts and momentum == 0:
        raise ConfigError(
            f"activations.bounds='adaptive' with {type(optimizer).__name__}, momentum {momentum:g}: wanted "
            "SGD with momentum, which the bounds are set from. Set training.momentum above 0, or "
            "activations.bounds=fixed."
        )
    return float(momentum)
