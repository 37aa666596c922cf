"""The choices that policies make, as pure functions of the candidates' scores."""

from __future__ import annotations

from collections.abc import Mapping


def smallest_reaching(similarities: Mapping[int, float], threshold: float) -> int | None:
    """The lowest group whose similarity is at least the threshold; None if there is none."""
    return min((group for group, value in similarities.items() if value >= threshold), default=None)


def smallest_exceeding(similarities: Mapping[int, float], threshold: float) -> int | None:
    """The lowest group whose similarity is above the threshold; None if there is none."""
    return min((group for group, value in similarities.items() if value > threshold), default=None)


def cheapest_within(losses: Mapping[int, float], tolerance: float) -> int:
    """The lowest group whose loss is at most (1 + tolerance) times the lowest loss, which is 0 or more."""
    limit = min(losses.values()) * (1 + tolerance)
    return min(group for group, loss in losses.items() if loss <= limit)
