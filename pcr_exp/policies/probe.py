"""What a policy can ask to be found out between two epochs; `pcr_exp.runs.probes` finds it out.

Each probe ends in one number per candidate group, which the policy is told with `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SimilarityProbe:
    """Mean MS-SSIM of training images decoded at each candidate, against all scan groups."""

    candidates: tuple[int, ...]
    num_images: int


@dataclass(frozen=True, slots=True)
class CosineProbe:
    """Cosine between the gradients of one fixed sample at each candidate and at all scan groups."""

    candidates: tuple[int, ...]
    num_images: int


@dataclass(frozen=True, slots=True)
class TrialProbe:
    """Loss after a short while of training at each candidate, each from the model as it is."""

    candidates: tuple[int, ...]
    num_steps: int
    judge: str
    """`train`: mean loss of the trial's second half; `tune`: loss on the images to tune by, after it."""


@dataclass(frozen=True, slots=True)
class ToleranceProbe:
    """What the task's headline loses at most when a model learns at each candidate instead of at all groups.

    The score is the upper end of the loss's 95 % interval, measured with a linear classifier on features of a
    pretrained network (`pcr_exp.measuring.tolerance`).
    """

    candidates: tuple[int, ...]
    num_images: int
    image_size: int
    deployment: str
    """`full`: the model is used at all groups; `same`: at the candidate."""


Probe: TypeAlias = SimilarityProbe | CosineProbe | TrialProbe | ToleranceProbe
