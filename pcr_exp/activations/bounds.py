"""The error bound of every layer, set anew every so often from what training looks like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcr_exp.activations.error_model import acceptable_sigma, exact_sensitivity, paper_sensitivity
from pcr_exp.config.activations import ActivationsConfig


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
