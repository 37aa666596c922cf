"""What `balanced` decides by: how fast images are consumed, and how fast storage and decoding supply them.

Pure functions and sums; the policy that feeds them is in `pcr_exp.policies.balanced`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was counted over some updates."""

    num_images: float = 0.0
    train_s: float = 0.0
    wait_s: float = 0.0
    num_bytes: float = 0.0
    """That storage delivered."""
    busy_s: float = 0.0
    """Seconds that it had reads to do."""

    def then(self, later: Stretch, memory: float) -> Stretch:
        """Both together, this one with the weight `memory`."""
        return Stretch(*(memory * a + b for a, b in zip(astuple(self), astuple(later), strict=True)))

    @property
    def consumed_per_s(self) -> float:
        """Images that the trainer takes per second when it does not wait."""
        return self.num_images / self.train_s if self.train_s > 0 else 0.0

    @property
    def delivered_per_s(self) -> float:
        """Images that came per second."""
        busy_s = self.train_s + self.wait_s
        return self.num_images / busy_s if busy_s > 0 else 0.0

    @property
    def wait_share(self) -> float:
        """wait / (train + wait)"""
        busy_s = self.train_s + self.wait_s
        return self.wait_s / busy_s if busy_s > 0 else 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that storage delivers per second when asked; None if it was not."""
        return self.num_bytes / self.busy_s if self.busy_s > 0 else None


def supplied_per_s(
    bytes_per_s: float, bytes_per_image: Mapping[int, float], decoded_per_s: Mapping[int, float]
) -> dict[int, float]:
    """Images per second that can be supplied at each group: X(g) = min(W / E[bytes at g], decode(g)).

    `decoded_per_s` holds the groups whose decoding was found to be the limit; higher groups decode no faster.
    """
    supplied = {}
    for group, size in bytes_per_image.items():
        limits = [rate for limited, rate in decoded_per_s.items() if limited <= group]
        supplied[group] = min([bytes_per_s / size, *limits])
    return supplied


def balanced_group(
    current: int, consumed_per_s: float, supplied: Mapping[int, float], headroom: float
) -> int:
    """The highest group at which supply keeps up with consumption; the lowest if it does at none.

    A higher group than the current one is taken only if it keeps up with `headroom` (a share) to spare, and
    the current one is kept as long as it keeps up at all: what lies between is not worth a change.
    """

    def highest(wanted_per_s: float) -> int:
        affordable = [group for group, rate in supplied.items() if rate >= wanted_per_s]
        return max(affordable, default=min(supplied))

    tenable, comfortable = highest(consumed_per_s), highest(consumed_per_s * (1 + headroom))
    if tenable < current:
        return tenable
    return max(current, comfortable)
