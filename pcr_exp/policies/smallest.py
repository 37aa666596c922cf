"""Policies that choose the smallest sufficient scan group, by one of three scores.

`mssim`: the images look like the originals; chosen once before training (Kuchnik et al. 2019, static tuning:
mean MS-SSIM over a sample, threshold 0.95). `cosine`: the gradients point in the same direction as those of
whole images (gradient tuning; epochs and threshold as in the authors' release). `tolerance`: the task
tolerates the group, as measured on frozen features before training. Unlike MS-SSIM, this depends on the task:
a linear classifier on features of a pretrained network measures the loss (`pcr_exp.measuring.tolerance`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
    Probe,
    SimilarityProbe,
    ToleranceProbe,
)


class SmallestScan(OneGroup):
    """Reads nothing of an epoch before its probe, then uses the smallest candidate that suffices."""

    def __init__(
        self,
        group: int,
        probe: Probe,
        full: int,
        is_enough: Callable[[float], bool],
        measure: str,
        *,
        first_epoch: int = 0,
        every_epochs: int | None = None,
    ) -> None:
        """Begin with `group` and probe before `first_epoch`, then every `every_epochs` (None: never again).

        Args:
            probe: Scores the candidates; the scores are of the kind `measure`.
            full: The records' highest group, chosen if no score is sufficient.
            is_enough: Returns whether a score is sufficient.
        """
        super().__init__(group, [*probe.candidates, full], undecided_from=first_epoch)
        self._probe = probe
        self._full = full
        self._is_enough = is_enough
        self._measure = measure
        self._every_epochs = every_epochs

    def wanted_probe(self, epoch: int) -> Probe | None:
        """Return the probe of all candidates, if it is due."""
        return self._probe if self.group(epoch, 0) is None else None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Choose the smallest group with a sufficient score."""
        assert self.undecided_from is not None  # otherwise there was no probe
        chosen = min((group for group, score in scores.items() if self._is_enough(score)), default=self._full)
        again = None if self._every_epochs is None else self.undecided_from + self._every_epochs
        self.choose(Decision(chosen, self._measure, scores), undecided_from=again)


@dataclass(kw_only=True, slots=True)
class MssimConfig(CandidatesConfig):
    """Choose once, before training, the smallest candidate whose images look like the originals."""

    threshold: Annotated[float, Bound(SHARE.holds, "a mean MS-SSIM in (0, 1]")] = 0.95
    """Sufficient mean MS-SSIM."""
    num_images: Annotated[int, at_least(1)] = 64
    """Training images to compare."""

    @property
    def uses_group(self) -> bool:
        """No: nothing is read before the choice."""
        return False


@register("scan", "mssim", MssimConfig)
def open_mssim(config: MssimConfig, run: PolicyInputs) -> SmallestScan:
    """Open the policy, given the number of groups in the run's records."""
    full, probe = run.index.num_groups, SimilarityProbe(tuple(config.candidates), config.num_images)
    return SmallestScan(full, probe, full, partial(operator.le, config.threshold), "ms_ssim")


_COSINE = Bound(lambda value: -1 <= value < 1, "a cosine in [-1, 1)")


@dataclass(kw_only=True, slots=True)
class CosineConfig(CandidatesConfig):
    """Choose every `every_epochs` epochs the smallest candidate whose gradients agree with whole images'."""

    threshold: Annotated[float, _COSINE] = 0.8
    """Gradient cosine that must be exceeded."""
    first_epoch: Annotated[int, at_least(0)] = 5
    """Epochs at `group` before the first probe."""
    every_epochs: Annotated[int, at_least(1)] = 15
    """Epochs between two probes."""
    num_images: Annotated[int, at_least(1)] = 640
    """Training images whose gradients are compared."""

    def num_probed(self, num_train: int, num_fresh: int, batch_size: int) -> int:  # noqa: ARG002
        """Return the images whose gradients are compared."""
        return min(num_train, self.num_images)

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As for every policy, with a probe of few images after the first epoch."""
        return {"first_epoch": 1, "every_epochs": 1, "num_images": 16}, 2


@register("scan", "cosine", CosineConfig)
def open_cosine(config: CosineConfig, run: PolicyInputs) -> SmallestScan:
    """Open the policy, given the number of groups in the run's records."""
    return SmallestScan(
        config.group,
        CosineProbe(tuple(config.candidates), config.num_images),
        run.index.num_groups,
        partial(operator.lt, config.threshold),
        "cosine",
        first_epoch=config.first_epoch,
        every_epochs=config.every_epochs,
    )


@dataclass(kw_only=True, slots=True)
class TolerancePolicyConfig(CandidatesConfig):
    """Choose once, before training, the smallest candidate with a drop in primary metric below `margin`."""

    margin: Annotated[float, MARGIN] = 0.01
    """Accepted drop as a share: 0.01 is one point. The upper end of its 95 % interval must be lower."""
    deployment: Annotated[str, one_of(*DEPLOYMENTS)] = "full"
    """`full`: the model is used at all scans, as in validation. `same`: at the group it was trained on."""
    num_images: Annotated[int, at_least(10)] = 500
    """Images to measure: the first of the training split, read once with all scans."""
    image_size: Annotated[int, at_least(32)] = 128
    """Side of the pretrained network's input, in pixels."""

    @property
    def uses_group(self) -> bool:
        """No: nothing is read before the choice."""
        return False


@register("scan", "tolerance", TolerancePolicyConfig)
def open_tolerance(config: TolerancePolicyConfig, run: PolicyInputs) -> SmallestScan:
    """Open the policy, given the number of groups in the run's records."""
    full = run.index.num_groups
    probe = ToleranceProbe(tuple(config.candidates), config.num_images, config.image_size, config.deployment)
    return SmallestScan(full, probe, full, partial(operator.gt, config.margin), "loss_bound")
