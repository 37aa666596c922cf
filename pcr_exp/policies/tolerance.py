"""`tolerance`: the smallest scan group that the task tolerates, as frozen features tell it before training.

Unlike MS-SSIM it knows the task: a linear classifier on features of a pretrained network says what the labels
lose (`pcr_exp.measuring.tolerance`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.config.tolerance import DEPLOYMENTS
from pcr_exp.policies.policy import Decision, OneGroup, PolicyInputs, ToleranceProbe


@dataclass(kw_only=True, slots=True)
class TolerancePolicyConfig(CandidatesConfig):
    """Once, before training: the smallest candidate that loses less of the task's headline than `margin`."""

    margin: float = 0.01
    """A share: 0.01 is one point. What counts is the upper end of the loss's 95 % interval."""
    deployment: str = "full"
    """`full`: the model is used at all scans, as validation uses it; `same`: at the group trained on."""
    num_images: int = 500
    """The first of the training split, read once with all scans."""
    image_size: int = 128
    """Pixels of a side of what the pretrained network sees."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        require(0 < self.margin < 1, "scan.margin", self.margin, "a share in (0, 1): 0.01 is one point")
        known = self.deployment in DEPLOYMENTS
        require(known, "scan.deployment", self.deployment, " or ".join(DEPLOYMENTS))
        require(self.num_images >= 10, "scan.num_images", self.num_images, "at least 10")
        require(self.image_size >= 32, "scan.image_size", self.image_size, "at least 32")


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
        """What every candidate may lose, before the first epoch."""
        return self._probe if self.group(epoch, 0) is None else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Take the smallest group that loses less than the margin."""
        chosen = smallest_within(scores, self._margin)
        self.choose(Decision(chosen or self.current, "loss_bound", scores))


@register("scan", "tolerance", TolerancePolicyConfig)
def open_tolerance(config: TolerancePolicyConfig, run: PolicyInputs) -> TolerancePolicy:
    """Needs the number of groups of the run's records."""
    return TolerancePolicy(config, run.index.num_groups)
