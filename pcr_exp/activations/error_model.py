"""How far a bounded error in a convolution's input moves its weight gradient.

The forward values are exact and the gradient that goes upstream needs the weights alone, so the error
enters only the weight gradient: the sum over images and positions of G e, where G is the loss gradient at the
layer's output and e the error of an input value, uniform in [-bound, bound] where the value is not zero and 0
elsewhere. Many independent terms: normal, with mean 0 and a standard deviation proportional to the bound.

An error whose own mean is not 0, as where a codec's cells are wide against the data, adds that mean times the
sum of G. Behind a convolution with a batch norm this sum is 0; elsewhere it is not modelled.
"""

from __future__ import annotations

import math

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
