"""`cosine`: the smallest scan group whose gradients point where those of the whole images point.

Kuchnik et al. 2019, gradient tuning; epochs and threshold as in the authors' release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import CosineProbe, Decision, OneGroup, PolicyInputs


@dataclass(kw_only=True, slots=True)
class CosineConfig(CandidatesConfig):
    """Every so many epochs: the smallest candidate whose gradients point where those of whole images do."""

    threshold: float = 0.8
    """Cosine that must be exceeded."""
    first_epoch: int = 5
    """Epochs before the first probe, at `group`."""
    every_epochs: int = 15
    """Epochs between two probes."""
    num_images: int = 640
    """Training images whose gradients are compared."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        require(-1 <= self.threshold < 1, "scan.threshold", self.threshold, "a cosine in [-1, 1)")
        require(self.first_epoch >= 0, "scan.first_epoch", self.first_epoch, "0 or more")
        for key in ("every_epochs", "num_images"):
            require(getattr(self, key) >= 1, f"scan.{key}", getattr(self, key), "at least 1")

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As every policy's: a probe of few images, after the first epoch."""
        return {"first_epoch": 1, "every_epochs": 1, "num_images": 16}, 2


def smallest_exceeding(similarities: Mapping[int, float], threshold: float) -> int | None:
    """The lowest group whose similarity is above the threshold; None if there is none."""
    return min((group for group, value in similarities.items() if value > threshold), default=None)


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


@register("scan", "cosine", CosineConfig)
def open_cosine(config: CosineConfig, run: PolicyInputs) -> CosineScan:
    """Needs the number of groups of the run's records."""
    return CosineScan(
        config.group,
        config.candidates,
        run.index.num_groups,
        threshold=config.threshold,
        first_epoch=config.first_epoch,
        every_epochs=config.every_epochs,
        num_images=config.num_images,
    )
