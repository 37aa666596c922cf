"""`mssim`: the smallest scan group whose images look like the originals, chosen once before training.

Kuchnik et al. 2019, static tuning: mean MS-SSIM over a sample, threshold 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pcr_exp.policies.choose import smallest_reaching
from pcr_exp.policies.policy import Decision, OneGroup
from pcr_exp.policies.probe import SimilarityProbe


class MssimScan(OneGroup):
    """Nothing is read before the sample was measured; from then on one group, or all if none will do."""

    def __init__(self, candidates: Sequence[int], full: int, *, threshold: float, num_images: int) -> None:
        """`full` is the records' highest group."""
        super().__init__(full, candidates, undecided_from=0)
        self._probe = SimilarityProbe(tuple(candidates), num_images)
        self._threshold = threshold

    def wanted_probe(self, epoch: int) -> SimilarityProbe | None:
        """The similarity of every candidate, before the first epoch."""
        return self._probe if self.group(epoch, 0) is None else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Take the smallest group that reaches the threshold."""
        chosen = smallest_reaching(scores, self._threshold)
        self.choose(Decision(chosen or self.current, "ms_ssim", scores))
