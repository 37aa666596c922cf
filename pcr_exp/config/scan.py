"""Which bytes of each record are read: a scan group for good, or a policy that chooses it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import require
from pcr_exp.config.records import NUM_GROUPS

PAPER_GROUPS = (1, 2, 5, 10)
"""The scan groups that the paper compares."""


@dataclass(kw_only=True, slots=True)
class ScanConfig:
    """Which bytes of each record are read. As it is, one scan group; a policy's own class says more."""

    name: str = MISSING
    encoding: str = "pcr"
    """`pcr`, or `baseline`: the original JPEG bytes in the same container."""
    group: int = NUM_GROUPS
    """The scan group; of a policy the one that it begins with."""

    def __post_init__(self) -> None:
        require(self.encoding in ("pcr", "baseline"), "scan.encoding", self.encoding, "pcr or baseline")
        highest = NUM_GROUPS if self.encoding == "pcr" else 1
        require(1 <= self.group <= highest, "scan.group", self.group, f"a scan group, 1..{highest}")


@dataclass(kw_only=True, slots=True)
class PolicyConfig(ScanConfig):
    """What all policies share: they choose among scan groups of progressive records."""

    def __post_init__(self) -> None:
        ScanConfig.__post_init__(self)
        wanted = "pcr: baseline records have one scan group, and a policy nothing to choose"
        require(self.encoding == "pcr", "scan.encoding", self.encoding, wanted)


@dataclass(kw_only=True, slots=True)
class CandidatesConfig(PolicyConfig):
    """A policy that chooses among a list of scan groups."""

    candidates: list[int] = field(default_factory=lambda: list(PAPER_GROUPS))

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        _require_groups("scan.candidates", self.candidates)
        rising = self.candidates == sorted(set(self.candidates))
        require(rising, "scan.candidates", self.candidates, "every scan group once, from low to high")


@dataclass(kw_only=True, slots=True)
class ScheduleConfig(PolicyConfig):
    """A fixed curriculum: `groups[0]` until `milestones[0]` epochs are done, then `groups[1]`, and so on."""

    groups: list[int] = field(default_factory=lambda: [1, 2, 5, 10])
    milestones: list[int] = field(default_factory=lambda: [5, 10, 20])

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        _require_groups("scan.groups", self.groups)
        wanted = f"rising epochs from 1 on, one less than scan.groups={self.groups} has groups"
        rising = self.milestones == sorted(set(self.milestones)) and min(self.milestones, default=1) >= 1
        fits = rising and len(self.milestones) == len(self.groups) - 1
        require(fits, "scan.milestones", self.milestones, wanted)
        self.group = self.groups[0]


@dataclass(kw_only=True, slots=True)
class MixtureConfig(CandidatesConfig):
    """Each record's group is drawn from the candidates around `group`."""

    weights: list[float] = field(default_factory=lambda: [10.0, 1.0])
    """Of `group`, of the candidates next to it on either side, of those after them, and so on; others: 0."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        _require_start(self)
        fits = bool(self.weights) and all(0 <= weight < math.inf for weight in self.weights)
        wanted = "finite weights of 0 or more, the first above 0"
        require(fits and self.weights[0] > 0, "scan.weights", self.weights, wanted)


@dataclass(kw_only=True, slots=True)
class MssimConfig(CandidatesConfig):
    """Once, before training: the smallest candidate whose images look like the originals."""

    threshold: float = 0.95
    """Mean MS-SSIM that is enough."""
    num_images: int = 64

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        wanted = "a mean MS-SSIM in (0, 1]"
        require(0 < self.threshold <= 1, "scan.threshold", self.threshold, wanted)
        require(self.num_images >= 1, "scan.num_images", self.num_images, "at least 1")


@dataclass(kw_only=True, slots=True)
class CosineConfig(CandidatesConfig):
    """Every so many epochs: the smallest candidate whose gradients point where those of whole images do."""

    threshold: float = 0.8
    """Cosine that must be exceeded."""
    first_epoch: int = 5
    """Epochs before the first probe, at `group`."""
    every_epochs: int = 15
    num_images: int = 640

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        require(-1 <= self.threshold < 1, "scan.threshold", self.threshold, "a cosine in [-1, 1)")
        require(self.first_epoch >= 0, "scan.first_epoch", self.first_epoch, "0 or more")
        for key in ("every_epochs", "num_images"):
            require(getattr(self, key) >= 1, f"scan.{key}", getattr(self, key), "at least 1")


@dataclass(kw_only=True, slots=True)
class PlateauConfig(CandidatesConfig):
    """When the training loss stops falling: the cheapest candidate that does about as well as the best."""

    patience_epochs: int = 3
    """Epochs without a new low of the loss that make a plateau."""
    min_drop: float = 0.01
    """Share of the lowest loss by which a new low must be lower."""
    trial_steps: int = 20
    """Updates at each candidate, up to an epoch."""
    tolerance: float = 0.02
    """Share of the best candidate's loss that a cheaper one may be worse."""
    judge: str = "train"
    """A candidate's loss: `train`, over the second half of its trial, or `tune`, after it on the whole images
    that were held out for that."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        for key in ("patience_epochs", "trial_steps"):
            require(getattr(self, key) >= 1, f"scan.{key}", getattr(self, key), "at least 1")
        require(0 <= self.min_drop < 1, "scan.min_drop", self.min_drop, "a share in [0, 1)")
        require(0 <= self.tolerance < math.inf, "scan.tolerance", self.tolerance, "a share of 0 or more")
        wanted = "train or tune (val is what is reported, so nothing is decided on it)"
        require(self.judge in ("train", "tune"), "scan.judge", self.judge, wanted)


@dataclass(kw_only=True, slots=True)
class BalancedConfig(CandidatesConfig):
    """The highest candidate at which training does not wait for data, as storage and trainer allow."""

    group: int = 1
    candidates: list[int] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    floor: ScanConfig = MISSING
    """A scan group or a policy below whose choice nothing is read: `scan@scan.floor=<option>`."""
    every_steps: int = 10
    """Updates between two decisions."""
    headroom: float = 0.1
    """Share by which storage must exceed what a higher group takes, before it is chosen."""
    max_slowdown: float = 0.05
    """Share of a lower group's images/s that a group may cost though storage keeps up: decoding's."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        _require_start(self)
        plain = not isinstance(self.floor, BalancedConfig) and self.floor.encoding == "pcr"
        wanted = "a scan group of progressive records, or another policy"
        require(plain, "scan.floor", self.floor.name, wanted)
        require(self.every_steps >= 1, "scan.every_steps", self.every_steps, "at least 1")
        require(0 <= self.headroom < math.inf, "scan.headroom", self.headroom, "a share of 0 or more")
        wanted = "a share in (0, 1)"
        require(0 < self.max_slowdown < 1, "scan.max_slowdown", self.max_slowdown, wanted)


def _require_groups(key: str, groups: list[int]) -> None:
    inside = bool(groups) and all(1 <= group <= NUM_GROUPS for group in groups)
    require(inside, key, groups, f"scan groups that the records have, 1..{NUM_GROUPS}, at least one")


def _require_start(config: CandidatesConfig) -> None:
    require(config.group in config.candidates, "scan.group", config.group, f"one of {config.candidates}")


SCAN_SCHEMAS: dict[str, type[ScanConfig]] = {
    "static": ScanConfig,
    "schedule": ScheduleConfig,
    "mixture": MixtureConfig,
    "mssim": MssimConfig,
    "cosine": CosineConfig,
    "plateau": PlateauConfig,
    "balanced": BalancedConfig,
}
