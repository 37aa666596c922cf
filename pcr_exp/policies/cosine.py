"""`cosine`: the smallest scan group whose gradients point where those of the whole images point.

Kuchnik et al. 2019, gradient tuning; epochs and threshold as in the authors' release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pcr_exp.policies.choose import smallest_exceeding
from pcr_exp.policies.policy import Decision, OneGroup
from pcr_exp.policies.probe import CosineProbe


class CosineScan(OneGroup):
    """Begins with a given group and probes after `first_epoch` epochs, then after every `every_epochs`."""

    def __init__(
        self,
        group: int,
        candidates: Sequence[int],
        full: int,
        *,
        threshold: float,
        first_epoch: int,
        every_epochs: int,
        num_images: int,
    ) -> None:
        """`full`, the records' highest group, is taken if no candidate exceeds the threshold."""
        super().__init__(group, [*candidates, full], undecided_from=first_epoch)
        self._probe = CosineProbe(tuple(candidates), num_images)
        self._full = full
        self._threshold = threshold
        self._every_epochs = every_epochs

    def wanted_probe(self, epoch: int) -> CosineProbe | None:
        """The cosine of every candidate, when it is due."""
        return self._probe if self.group(epoch, 0) is None else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Take the smallest group that exceeds the threshold, until the next probe."""
        assert self.undecided_from is not None  # nothing is probed otherwise
        chosen = smallest_exceeding(scores, self._threshold) or self._full
        following = self.undecided_from + self._every_epochs
        self.choose(Decision(chosen, "cosine", scores), undecided_from=following)
