"""The rates that `balanced` decides by: images consumed, supplied by storage, decoded at each scan group.

Consumption and supply are counted over intervals of a few updates (`Interval`). The cost of fidelity besides
bytes shows in the speed of training at each scan group while storage keeps up (`Pace`). Decoding more scans
takes processor time. If decoding is the limit, training waits. If decoding shares its cores with training,
training itself is slower. Both lower the images per second compared with a lower group. Waiting alone proves
nothing: handing batches over takes time at every group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

_FORGET_AFTER = 50
"""Intervals after which limits are measured anew, because other processes come and go."""
_NUM_REMEMBERED = 6
"""Intervals averaged for a group's speed, because the machine itself has faster and slower minutes."""
_NUM_TO_JUDGE = 3
"""Intervals at a group before its speed is compared with other groups'."""
_STANDARD_ERRORS = 2
"""Standard errors by which a loss of speed must exceed the accepted slowdown."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Counts and seconds of several updates."""

    num_images: float = 0.0
    train_s: float = 0.0
    wait_s: float = 0.0
    num_bytes: float = 0.0
    """Bytes that storage delivered."""
    busy_s: float = 0.0
    """Seconds in which storage had reads to serve."""

    def then(self, later: Interval, memory: float) -> Interval:
        """Return the sum of both, with weight `memory` for this one."""
        return Interval(*(memory * a + b for a, b in zip(astuple(self), astuple(later), strict=True)))

    @property
    def consumed_per_s(self) -> float:
        """Images that the trainer takes per second when it does not wait."""
        return self.num_images / self.train_s if self.train_s > 0 else 0.0

    @property
    def delivered_per_s(self) -> float:
        """Images delivered per second of training and waiting."""
        busy_s = self.train_s + self.wait_s
        return self.num_images / busy_s if busy_s > 0 else 0.0

    @property
    def wait_share(self) -> float:
        """Waiting as a share of training plus waiting."""
        busy_s = self.train_s + self.wait_s
        return self.wait_s / busy_s if busy_s > 0 else 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that storage delivers per second while it has reads; None if it had none."""
        return self.num_bytes / self.busy_s if self.busy_s > 0 else None


def supplied_per_s(
    bytes_per_s: float, bytes_per_image: Mapping[int, float], decoded_per_s: Mapping[int, float]
) -> dict[int, float]:
    """Return the images/s that can be supplied at each group: X(g) = min(W / E[bytes at g], decode(g)).

    `decoded_per_s` holds groups at which decoding was found to be the limit; higher groups decode no faster.
    """
    supplied = {}
    for group, size in bytes_per_image.items():
        limits = [rate for limited, rate in decoded_per_s.items() if limited <= group]
        supplied[group] = min([bytes_per_s / size, *limits])
    return supplied


def balanced_group(
    current: int, consumed_per_s: float, supplied: Mapping[int, float], headroom: float
) -> int:
    """Return the highest group at which supply keeps up with consumption, or the lowest if none does.

    A group above the current one is chosen only if supply keeps up with `headroom` (a share) to spare. The
    current group stays as long as supply keeps up at all, which avoids changes for small gains.
    """

    def highest(wanted_per_s: float) -> int:
        affordable = [group for group, rate in supplied.items() if rate >= wanted_per_s]
        return max(affordable, default=min(supplied))

    tenable, comfortable = highest(consumed_per_s), highest(consumed_per_s * (1 + headroom))
    if tenable < current:
        return tenable
    return max(current, comfortable)


@dataclass(frozen=True, slots=True)
class Rates:
    """Images per second of recent intervals: count, mean, and sum of squared differences from the mean."""

    num: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def and_also(self, rate: float) -> Rates:
        """Add a rate (Welford's recurrence); earlier rates fade once there are `_NUM_REMEMBERED`."""
        num = min(self.num, _NUM_REMEMBERED - 1)
        squares = self.squares * num / self.num if self.num else 0.0
        mean = self.mean + (rate - self.mean) / (num + 1)
        return Rates(num + 1, mean, squares + (rate - self.mean) * (rate - mean))

    @property
    def squared_error(self) -> float:
        """Squared standard error of the mean: variance / n; infinite for fewer than two rates."""
        return self.squares / (self.num - 1) / self.num if self.num > 1 else math.inf


class Pace:
    """Tracks the groups that are too slow, from intervals in which storage kept up."""

    def __init__(self, max_slowdown: float) -> None:
        """`max_slowdown` is the share of speed that may be lost."""
        self._max_slowdown = max_slowdown
        self._measured: dict[int, Rates] = {}
        self._num_intervals = 0
        self.too_slow: dict[int, float] = {}
        """Images per second of the groups that are too slow."""

    def observe(self, group: int, rate: float, wait_share: float, *, lowest: int) -> None:
        """Record an interval at one group: its images/s and the share of its time spent waiting.

        `lowest` is the lowest group that may be read. While no group below `group` is known, too much waiting
        marks `group` as too slow, so that a lower one is measured.
        """
        self._num_intervals += 1
        if self._num_intervals % _FORGET_AFTER == 0:
            self._forget()
        self._measured[group] = self._measured.get(group, Rates()).and_also(rate)
        if not self._lower(group):
            if group > lowest and wait_share > self._max_slowdown:
                self.too_slow[group] = rate
        elif self.is_known(group) and self._is_slow(group):
            self.too_slow[group] = self._measured[group].mean
        self.too_slow = {slow: rate for slow, rate in self.too_slow.items() if not self._is_cleared(slow)}

    def is_known(self, group: int) -> bool:
        """Return whether the group has enough intervals for comparisons."""
        return self._measured.get(group, Rates()).num >= _NUM_TO_JUDGE

    def fast_enough(self, groups: Iterable[int]) -> set[int]:
        """Return the groups below every group that is too slow, as decoding gets no faster with more scans.

        Of the unknown groups between a known group and one that is too slow, only the lower half is returned,
        which finds the limit by bisection.
        """
        slow = min(self.too_slow, default=math.inf)
        below = sorted(group for group in groups if group < slow)
        unknown = [
            group for group in below if not any(self.is_known(other) for other in below if other >= group)
        ]
        num_left_out = len(unknown) // 2 if self.too_slow else 0
        return set(below[: len(below) - num_left_out])

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {
            "measured": {group: list(astuple(rates)) for group, rates in self._measured.items()},
            "num_stretches": self._num_intervals,
            "too_slow": dict(self.too_slow),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        # JSON keys are strings.
        self._measured = {int(group): Rates(*rates) for group, rates in state["measured"].items()}
        self._num_intervals = state["num_stretches"]
        self.too_slow = {int(group): rate for group, rate in state["too_slow"].items()}

    def _lower(self, group: int) -> list[Rates]:
        return [
            rates
            for measured, rates in self._measured.items()
            if measured < group and self.is_known(measured)
        ]

    def _is_slow(self, group: int) -> bool:
        """Return whether a lower group is faster by more than the accepted slowdown and chance."""
        own, share = self._measured[group], 1 - self._max_slowdown
        return any(
            share * other.mean - own.mean
            > _STANDARD_ERRORS * math.sqrt(own.squared_error + share**2 * other.squared_error)
            for other in self._lower(group)
        )

    def _is_cleared(self, group: int) -> bool:
        """Return whether lower groups are known and none is faster by more than the accepted slowdown."""
        lower, share = self._lower(group), 1 - self._max_slowdown
        return bool(lower) and all(self._measured[group].mean >= share * other.mean for other in lower)

    def _forget(self) -> None:
        lowest = min(self._measured)
        self._measured = {lowest: self._measured[lowest]}
        self.too_slow = {}
