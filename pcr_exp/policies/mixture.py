"""`mixture`: each record's scan group is drawn from a distribution around a selected one.

Kuchnik et al. 2019, dynamic mixtures: mostly the selected group, now and then another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pcr_exp.policies.policy import OneGroup
from pcr_exp.system.randomness import Purpose, stream


def probabilities(
    candidates: Sequence[int], selected: int, weights: Sequence[float]
) -> npt.NDArray[np.float64]:
    """[len(candidates)] each candidate's share, by its distance in the list from `selected`.

    `weights[0]` is that of `selected`, `weights[d]` that of each candidate d places away; beyond them 0.
    """
    place = candidates.index(selected)
    distances = [abs(i - place) for i in range(len(candidates))]
    shares = np.array([weights[d] if d < len(weights) else 0.0 for d in distances])
    return shares / shares.sum()


class MixtureScan(OneGroup):
    """A function of (seed, epoch, record): the same for every worker and rank, and after a resume."""

    def __init__(self, selected: int, candidates: Sequence[int], weights: Sequence[float], seed: int) -> None:
        super().__init__(selected, candidates)
        self._ends = np.cumsum(probabilities(self.candidates, selected, weights))
        self._seed = seed

    def group(self, epoch: int, record: int) -> int | None:
        """The group that the record draws in the epoch."""
        draw = stream(self._seed, Purpose.SCAN_GROUP, epoch, record).random()
        # Scaled by the last end, which need not be 1 to the last bit.
        return self.candidates[int(np.searchsorted(self._ends, draw * self._ends[-1], side="right"))]
