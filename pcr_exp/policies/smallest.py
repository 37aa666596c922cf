"""Policies that take the smallest scan group that does, by three scores.

`mssim`: its images look like the originals; chosen once before training (Kuchnik et al. 2019, static tuning:
mean MS-SSIM over a sample, threshold 0.95). `cosine`: its gradients point where those of the whole images
point (gradient tuning; epochs and threshold as in the authors' release). `tolerance`: the task tolerates it,
as frozen features tell before training. Unlike MS-SSIM that knows the task: a linear classifier on features
of a pretrained network says what the labels lose (`pcr_exp.measuring.tolerance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pcr_exp.config.check import SHARE, Bound, at_least, one_of
from pcr_exp.config.components import register
from pcr_exp.config.measuring import DEPLOYMENTS, MARGIN
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import (
    CosineProbe,
    Decision,
    OneGroup,
    PolicyInputs,
    SimilarityProbe,
    ToleranceProbe,
)


@dataclass(kw_only=True, slots=True)
class MssimConfig(CandidatesConfig):
    """Once, before training: the smallest candidate whose images look like the originals."""

    threshold: Annotated[float, Bound(SHARE.holds, "a mean MS-SSIM in (0, 1]")] = 0.95
    """Mean MS-SSIM that is enough."""
    num_images: Annotated[int, at_least(1)] = 64
    """Training images that are compared."""


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


_COSINE = Bound(lambda value: -1 <= value < 1, "a cosine in [-1, 1)")


@dataclass(kw_only=True, slots=True)
class CosineConfig(CandidatesConfig):
    """Every so many epochs: the smallest candidate whose gradients point where those of whole images do."""

    threshold: Annotated[float, _COSINE] = 0.8
    """Cosine that must be exceeded."""
    first_epoch: Annotated[int, at_least(0)] = 5
    """Epochs before the first probe, at `group`."""
    every_epochs: Annotated[int, at_least(1)] = 15
    """Epochs between two probes."""
    num_images: Annotated[int, at_least(1)] = 640
    """Training images whose gradients are compared."""

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


@dataclass(kw_only=True, slots=True)
class TolerancePolicyConfig(CandidatesConfig):
    """Once, before training: the smallest candidate that loses less of the task's headline than `margin`."""

    margin: Annotated[float, MARGIN] = 0.01
    """A share: 0.01 is one point. What counts is the upper end of the loss's 95 % interval."""
    deployment: Annotated[str, one_of(*DEPLOYMENTS)] = "full"
    """`full`: the model is used at all scans, as validation uses it; `same`: at the group trained on."""
    num_images: Annotated[int, at_least(10)] = 500
    """The first of the training split, read once with all scans."""
    image_size: Annotated[int, at_least(32)] = 128
    """Pixels of a side of what the pretrained network sees."""


def smallest_within(loss_bounds: Mapping[int, float], margin: float) -> int | None:
    """The lowest group whose loss is below the margin for sure; None if there is none."""
    return min((group for group, bound in loss_bounds.items() if bound < margin), default=None)


class TolerancePolicy(OneGroup):
    """Nothing is read before the sample was measured; from then on one group, or all if none will do."""

    def __init__(self, config: TolerancePolicyConfig, full: int) -> None:
        """`full` is the records' highest group."""
        super().__init__(full, config.candidates, undecided_from=0)
        self._margin = config.margin
        self._probe = ToleranceProbe(
            tuple(config.candidates), config.num_images, config.image_size, config.deployment
        )

    def wanted_probe(self, epoch: int) -> ToleranceProbe | None:
        """A probe of every candidate's loss, before the first epoch."""
        return self._probe if self.group(epoch, 0) is None else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Take the smallest group that loses less than the margin."""
        chosen = smallest_within(scores, self._margin)
        self.choose(Decision(chosen or self.current, "loss_bound", scores))


@register("scan", "tolerance", TolerancePolicyConfig)
def open_tolerance(config: TolerancePolicyConfig, run: PolicyInputs) -> TolerancePolicy:
    """Needs the number of groups of the run's records."""
    return TolerancePolicy(config, run.index.num_groups)
