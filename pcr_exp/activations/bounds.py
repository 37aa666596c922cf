"""The error bound of every layer, and how far such an error moves the layer's weight gradient.

The forward values are exact and the gradient that goes upstream needs the weights alone, so the error
enters only the weight gradient: the sum over images and positions of G e, where G is the loss gradient at the
layer's output and e the error of an input value, uniform in [-bound, bound] where the value is not zero and 0
elsewhere. Many independent terms: normal, with mean 0 and a standard deviation proportional to the bound.

An error whose own mean is not 0, as where a codec's cells are wide against the data, adds that mean times the
sum of G. Behind a convolution with a batch norm this sum is 0; elsewhere it is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcr_exp.config.activations import ActivationsConfig

PAPER_FACTOR = 0.32
"""The paper's empirical coefficient. It is no constant: of Gaussian G it is about 0.69 sqrt(H W)."""


def exact_sensitivity(gradient_norm: float, nonzero_share: float) -> float:
    """Return the standard deviation of a weight gradient's error per unit of bound.

    The variance of a uniform error is bound ** 2 / 3, so each weight of output channel k has
    sigma_k = bound sqrt(R / 3) ||G_k||. Padding is not modelled: at the edges some terms are missing.

    Args:
        gradient_norm: ||G_k||, over the batch and all positions of one output channel; of a whole layer,
            the root mean square over its channels.
        nonzero_share: R, the share of input values that are not zero.
    """
    return gradient_norm * math.sqrt(nonzero_share / 3)


def paper_sensitivity(
    mean_abs_gradient: float, batch_size: int, nonzero_share: float, factor: float = PAPER_FACTOR
) -> float:
    """Return the same in the paper's form: sigma = a L sqrt(N R) bound.

    Args:
        mean_abs_gradient: L, the mean of |G| over the layer's whole output.
        batch_size: N, images.
        nonzero_share: R.
        factor: a.
    """
    return factor * mean_abs_gradient * math.sqrt(batch_size * nonzero_share)


def acceptable_sigma(mean_abs_momentum: float, momentum: float, fraction: float) -> float:
    """Return the standard deviation of a gradient error that training shall not notice.

    torch's momentum buffer sums gradients, each weighing `momentum` times the next, without the learning
    rate: about 1 / (1 - momentum) gradients. It is scaled back to one before the fraction is taken.

    Args:
        mean_abs_momentum: Mean of |buffer| over the layer's weights.
        momentum: Of SGD, in (0, 1).
        fraction: The paper's 0.01.
    """
    return fraction * (1 - momentum) * mean_abs_momentum


@dataclass(frozen=True, slots=True)
class LayerState:
    """What a layer's next bound is made of."""

    nonzero_share: float
    gradient_norm: float
    """Root mean square over output channels of ||G_k||."""
    mean_abs_gradient: float
    batch_size: int
    mean_abs_momentum: float
    """Mean magnitude of the weight's momentum buffer in torch's SGD; 0: there is none yet."""


class Bounds:
    """One bound per layer; all are `initial_bound` until the first call of `adapt`."""

    def __init__(self, config: ActivationsConfig, momentum: float) -> None:
        """Set bounds as `config` says, for SGD with this momentum."""
        self._config = config
        self._momentum = momentum
        self._bounds: dict[str, float] = {}

    def of(self, layer: str) -> float:
        """Return the layer's bound now."""
        return self._bounds.get(layer, self._config.initial_bound)

    def sensitivity(self, state: LayerState) -> float:
        """Return the standard deviation of the layer's gradient error per unit of bound."""
        if self._config.error_model == "paper":
            return paper_sensitivity(
                state.mean_abs_gradient, state.batch_size, state.nonzero_share, self._config.paper_factor
            )
        return exact_sensitivity(state.gradient_norm, state.nonzero_share)

    def acceptable_sigma(self, state: LayerState) -> float:
        """Return how large that standard deviation may be."""
        fraction = self._config.momentum_fraction
        return acceptable_sigma(state.mean_abs_momentum, self._momentum, fraction)

    def adapt(self, states: Mapping[str, LayerState], shared_with: Mapping[str, str]) -> None:
        """Set the bound of every layer so that its gradient error is just acceptable.

        A layer keeps its bound where that says nothing: no momentum yet, no gradient, or one that is not
        finite (an update that loss scaling skipped).

        Args:
            states: By layer.
            shared_with: Layers that use another one's packed input: all of them get the smallest bound.
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
        """Go on with these bounds."""
        self._bounds = dict(state)
