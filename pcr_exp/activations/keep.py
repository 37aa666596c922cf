"""The interface between training and saved activations, and the error model that sets the bounds.

Forward values are exact, and the gradient sent upstream is computed from the weights alone. The error of
compression therefore affects only the weight gradient, as the sum of G e over images and positions. G is the
loss gradient at the layer's output. e is the error of an input value: uniform in [-bound, bound] where the
value is nonzero, 0 elsewhere. The sum has many independent terms, so it is normal with mean 0 and a standard
deviation proportional to the bound.

If the mean of e is not 0, as with codec cells that are wide relative to the data, it adds that mean times the
sum of G. This sum is 0 for a convolution followed by a batch norm; elsewhere it is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pcr_exp.activations.codec import Codec, LosslessCodec
from pcr_exp.activations.hooks import ConvInputs, LayerTally, convolutions
from pcr_exp.activations.packed import pack
from pcr_exp.activations.recompute import RecomputedBlocks
from pcr_exp.config.components import component
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.errors import ConfigError

PAPER_FACTOR = 0.32
"""The paper's empirical coefficient. It is not constant: for Gaussian G it is about 0.72 sqrt(H W)."""


def exact_sensitivity(gradient_norm: float, nonzero_share: float) -> float:
    """Return the standard deviation of a weight gradient's error per unit of bound.

    The variance of a uniform error is bound ** 2 / 3, so each weight of output channel k has
    sigma_k = bound sqrt(R / 3) ||G_k||. Padding is not modelled; it removes some terms at the edges.

    Args:
        gradient_norm: ||G_k|| over the batch and all positions of one output channel. For a whole layer,
            the root mean square over its channels.
        nonzero_share: R, the share of nonzero input values.
    """
    return gradient_norm * math.sqrt(nonzero_share / 3)


def paper_sensitivity(
    mean_abs_gradient: float, batch_size: int, nonzero_share: float, factor: float = PAPER_FACTOR
) -> float:
    """Return the same standard deviation in the paper's form, sigma = a L sqrt(N R) bound.

    Args:
        mean_abs_gradient: L, the mean of |G| over the layer's whole output.
        batch_size: N, the number of images.
        nonzero_share: R, as in `exact_sensitivity`.
        factor: a, the empirical coefficient.
    """
    return factor * mean_abs_gradient * math.sqrt(batch_size * nonzero_share)


def acceptable_sigma(mean_abs_momentum: float, momentum: float, fraction: float) -> float:
    """Return the largest standard deviation of a gradient error that should not affect training.

    torch's momentum buffer sums gradients without the learning rate, each weighted `momentum` times the next.
    That is about 1 / (1 - momentum) gradients, so it is scaled back to one.

    Args:
        mean_abs_momentum: Mean of |buffer| over the layer's weights.
        momentum: Momentum of SGD, in (0, 1).
        fraction: Accepted share of that mean after scaling; 0.01 in the paper.
    """
    return fraction * (1 - momentum) * mean_abs_momentum


@dataclass(frozen=True, slots=True)
class LayerState:
    """Measurements that determine a layer's next bound."""

    nonzero_share: float
    gradient_norm: float
    """Root mean square of ||G_k|| over output channels."""
    mean_abs_gradient: float
    batch_size: int
    mean_abs_momentum: float
    """Mean magnitude of the weight's momentum buffer in torch's SGD; 0 before it exists."""
    num_micro_batches: int = 1
    """Micro-batches in the global batch; all fields but the momentum are measured on one of them."""


class Bounds:
    """Error bounds by layer; each is `initial_bound` until `adapt` changes it."""

    def __init__(self, config: ActivationsConfig, momentum: float) -> None:
        """Start from the bounds in `config`, for SGD with this momentum."""
        self._config = config
        self._momentum = momentum
        self._bounds: dict[str, float] = {}

    def of(self, layer: str) -> float:
        """Return the layer's current bound."""
        return self._bounds.get(layer, self._config.initial_bound)

    def sensitivity(self, state: LayerState) -> float:
        """Return the standard deviation of the layer's gradient error per unit of bound.

        The optimizer sees the mean over all micro-batches, whose errors are independent.
        """
        if self._config.error_model == "paper":
            of_one = paper_sensitivity(
                state.mean_abs_gradient, state.batch_size, state.nonzero_share, self._config.paper_factor
            )
        else:
            of_one = exact_sensitivity(state.gradient_norm, state.nonzero_share)
        return of_one / math.sqrt(state.num_micro_batches)

    def acceptable_sigma(self, state: LayerState) -> float:
        """Return the largest acceptable standard deviation of the layer's gradient error."""
        fraction = self._config.momentum_fraction
        return acceptable_sigma(state.mean_abs_momentum, self._momentum, fraction)

    def adapt(self, states: Mapping[str, LayerState], shared_with: Mapping[str, str]) -> None:
        """Set the bound of every layer so that its gradient error is just acceptable.

        Fixed bounds do not change. A layer also keeps its bound if it has no momentum yet, no gradient, or
        one that is not finite (loss scaling skipped the update).

        Args:
            states: Measurements by layer.
            shared_with: By layer, the other layer whose packed input it uses; all get the smallest bound.
        """
        if self._config.bounds == "fixed":
            return
        for layer, state in states.items():
            sigma, sensitivity = self.acceptable_sigma(state), self.sensitivity(state)
            if sigma > 0 and 0 < sensitivity < math.inf and math.isfinite(sigma / sensitivity):
                self._bounds[layer] = sigma / sensitivity
        for layer, owner in shared_with.items():
            self._bounds[owner] = min(self.of(owner), self.of(layer))
        for layer, owner in shared_with.items():
            self._bounds[layer] = self.of(owner)

    def state_dict(self) -> dict[str, Any]:
        """Return the bounds, for a checkpoint."""
        return dict(self._bounds)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore bounds from a checkpoint."""
        self._bounds = dict(state)


LayerRow = dict[str, Any]


class Activations(Protocol):
    """The interface that training uses."""

    @property
    def history(self) -> list[LayerRow]:
        """One row per layer and measured update; saved in checkpoints."""

    def begin(self, step: int) -> None:
        """Prepare for a forward pass of update `step`, counted from 0; there is one for each micro-batch."""

    def end(self, step: int, loss_scale: float, num_micro_batches: int = 1) -> None:
        """Finish an update after the optimizer's step; backward ran on the loss times `loss_scale`.

        `num_micro_batches` is their number in the global batch, over all processes.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return everything that updates change."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""

    def remove(self) -> None:
        """Remove all hooks and wrappers."""


class Untracked:
    """Modes without work per update: torch saves activations as usual, or blocks are recomputed."""

    def __init__(self, blocks: RecomputedBlocks | None = None) -> None:
        self.history: list[LayerRow] = []
        self._blocks = blocks

    def begin(self, step: int) -> None:
        pass

    def end(self, step: int, loss_scale: float, num_micro_batches: int = 1) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def remove(self) -> None:
        if self._blocks is not None:
            self._blocks.remove()


class InjectedErrors(Untracked):
    """Gradient errors of the size that adaptive bounds accept; activations stay uncompressed.

    Before each optimizer step, a normal error of standard deviation `acceptable_sigma` is added to every
    convolution's weight gradient, as for the paper's figure of accuracy under injected errors. The first
    update has no momentum yet, and so no error. All processes of a run draw the same errors.
    """

    def __init__(
        self, model: nn.Module, config: ActivationsConfig, optimizer: torch.optim.Optimizer, seed: int
    ) -> None:
        """Add a hook that runs before each step of `optimizer`.

        Raises:
            ConfigError: the model has no 2d convolution, or the optimizer no momentum.
        """
        super().__init__()
        self._sigma = partial(
            acceptable_sigma, momentum=_momentum(config, optimizer), fraction=config.momentum_fraction
        )
        self._weights = [conv.weight for conv in _convolutions(model, config).values()]
        self._seed, self._step = seed, 0
        self._hook = optimizer.register_step_pre_hook(self._inject)

    def begin(self, step: int) -> None:
        self._step = step

    def remove(self) -> None:
        self._hook.remove()

    def _inject(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # Seeded by the update's number: a resumed run draws the same errors. torch's CPU generator keeps only
        # 32 bits of its seed, so the run's seed and the number are mixed into them.
        mixed = np.random.SeedSequence((self._seed, self._step)).generate_state(1)[0]
        random = torch.Generator().manual_seed(int(mixed))
        for weight in self._weights:
            buffer = optimizer.state.get(weight, {}).get("momentum_buffer")
            if buffer is not None and weight.grad is not None:
                errors = torch.randn(weight.shape, generator=random).to(weight.device)
                weight.grad.add_(errors, alpha=self._sigma(float(buffer.abs().mean())))


class CompressedActivations:
    """Convolution inputs compressed by a codec; every `interval` updates the layers are measured.

    The last micro-batch of an update is measured. `predicted_sigma` is of the mean over the global batch.
    A measurement adds a row per layer to `history`. With `error_bounded` it also adapts the bounds, except at
    step 0, where the momentum is a single gradient.
    """

    def __init__(
        self, model: nn.Module, codec: Codec, config: ActivationsConfig, optimizer: torch.optim.Optimizer
    ) -> None:
        """Hook the convolutions of `model`, whose parameters `optimizer` updates.

        Raises:
            ConfigError: the model has no 2d convolution, or adaptive bounds lack an optimizer with momentum.
        """
        self._weights = {name: conv.weight for name, conv in _convolutions(model, config).items()}
        self.history: list[LayerRow] = []
        self.bounds = Bounds(config, _momentum(config, optimizer))
        self._optimizer = optimizer
        self._interval = config.interval
        self._lossy = config.name == "error_bounded"
        self._inputs = ConvInputs(model, partial(_pack, codec, self.bounds))

    def begin(self, step: int) -> None:
        self._inputs.begin(watch_gradients=self._lossy and step % self._interval == 0)

    def end(self, step: int, loss_scale: float, num_micro_batches: int = 1) -> None:
        if step % self._interval:
            return
        states = {
            layer: self._state(layer, tally, loss_scale, num_micro_batches)
            for layer, tally in self._inputs.tallies.items()
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

    def _state(self, layer: str, tally: LayerTally, loss_scale: float, num_micro_batches: int) -> LayerState:
        buffer = self._optimizer.state.get(self._weights[layer], {}).get("momentum_buffer")
        return LayerState(
            nonzero_share=tally.nonzero_share,
            gradient_norm=tally.gradient_norm(loss_scale),
            mean_abs_gradient=tally.mean_abs_gradient(loss_scale),
            batch_size=tally.batch_size,
            mean_abs_momentum=0.0 if buffer is None else float(buffer.abs().mean()),
            num_micro_batches=num_micro_batches,
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
    config: ActivationsConfig, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0
) -> Activations:
    """Set up how `model` saves activations, as configured; `seed` is for injected errors.

    Raises:
        ConfigError: the model or the optimizer does not suit the mode, or the codec is not installed.
    """
    if config.name == "none":
        return Untracked()
    if config.name == "recompute":
        return Untracked(RecomputedBlocks(model))
    if config.name == "injected_errors":
        return InjectedErrors(model, config, optimizer, seed)
    return CompressedActivations(model, open_codec(config), config, optimizer)


def open_codec(config: ActivationsConfig) -> Codec:
    """Return the codec of `lossless` or `error_bounded`.

    Raises:
        ConfigError: the codec is not installed.
    """
    if config.name == "lossless":
        return LosslessCodec()
    codec: Codec = component("activations.codec", config.codec).build(config)
    return codec


def _pack(codec: Codec, bounds: Bounds, layer: str, values: Tensor) -> Any:
    return pack(values, codec, bounds.of(layer))


def _convolutions(model: nn.Module, config: ActivationsConfig) -> dict[str, nn.Conv2d]:
    found = convolutions(model)
    if not found:
        raise ConfigError(
            f"activations.name={config.name!r}: {type(model).__name__} has no 2d convolution; wanted at "
            "least one, because this setting acts on the inputs or gradients of convolutions. Use "
            "activations=none with this model."
        )
    return found


def _momentum(config: ActivationsConfig, optimizer: torch.optim.Optimizer) -> float:
    momentum = optimizer.defaults.get("momentum", 0.0) if isinstance(optimizer, torch.optim.SGD) else 0.0
    if config.follows_momentum and momentum == 0:
        raise ConfigError(
            f"activations={config.name} with {type(optimizer).__name__}, momentum {momentum:g}: wanted SGD "
            "with momentum, from which the size of the errors is computed. Set training.momentum above 0, or "
            "activations=error_bounded activations.bounds=fixed."
        )
    return float(momentum)
