"""`mssim`: the smallest scan group whose images look like the originals, chosen once before training.

Kuchnik et al. 2019, static tuning: mean MS-SSIM over a sample, threshold 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import Decision, OneGroup, PolicyInputs, SimilarityProbe


@dataclass(kw_only=True, slots=True)
class MssimConfig(CandidatesConfig):
    """Once, before training: the smallest candidate whose images look like the originals."""

    threshold: float = 0.95
    """Mean MS-SSIM that is enough."""
    num_images: int = 64
    """Training images that are compared."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        wanted = "a mean MS-SSIM in (0, 1]"
        require(0 < self.threshold <= 1, "scan.threshold", self.threshold, wanted)
        require(self.num_images >= 1, "scan.num_images", self.num_images, "at least 1")


def smallest_reaching(similarities: Mapping[int, float], threshold: float) -> int | None:
    """The lowest group whose similarity is at least the threshold; None if there is none."""
    return min((group for group, value in similarities.items() if value >= threshold), default=None)


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


@register("scan", "mssim", MssimConfig)
def open_mssim(config: MssimConfig, run: PolicyInputs) -> MssimScan:
    """Needs the number of groups of the run's records."""
    return MssimScan(
        config.candidates, run.index.num_groups, threshold=config.threshold, num_images=config.num_images
    )
