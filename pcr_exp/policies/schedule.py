"""Policies whose choices are known before training.

`schedule`: a fixed curriculum of scan groups over epochs. `mixture`: each record's scan group is drawn from a
distribution around a selected one (Kuchnik et al. 2019, dynamic mixtures: mostly the selected group, now and
then another). `cached`: some records come from a cache at a lower scan group instead of being read.

The cache of `cached` is planned: the first records of a permutation, as many as fit into `scan.cache_mib` at
the lower group. From the second epoch on, every epoch draws a group for each of them: the lower one, without
a request, or the full one, whose beginning the cache provides. The actual contents of the cache decide
nothing: if they were lost, the same images are read at the same groups from storage.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pcr_exp.config.check import Bound, above, require
from pcr_exp.config.components import register
from pcr_exp.config.scan import GROUPS, CandidatesConfig, PolicyConfig, require_start
from pcr_exp.config.scan_scripts import groups_of_script
from pcr_exp.policies.policy import Decision, OneGroup, PolicyInputs, Update
from pcr_exp.system import MIB

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pcr_exp.records.index import RecordIndex


@dataclass(kw_only=True, slots=True)
class ScheduleConfig(PolicyConfig):
    """A fixed curriculum: `groups[0]` until `milestones[0]` epochs are done, then `groups[1]`, and so on."""

    groups: Annotated[list[int], GROUPS] = field(default_factory=lambda: [1, 2, 5, 10])
    """Scan groups, in order of use."""
    milestones: list[int] = field(default_factory=lambda: [5, 10, 20])
    """Epochs after which the next of `groups` is used."""

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        wanted = f"rising epochs from 1 on, one fewer than the groups in scan.groups={self.groups}"
        rising = self.milestones == sorted(set(self.milestones)) and min(self.milestones, default=1) >= 1
        fits = rising and len(self.milestones) == len(self.groups) - 1
        require(fits, "scan.milestones", self.milestones, wanted)
        self.group = self.groups[0]

    def fit(self, num_groups: int) -> None:
        """As for every policy, and for the groups of the curriculum."""
        PolicyConfig.fit(self, num_groups)
        self.groups = groups_of_script("scan.groups", self.groups, num_groups)

    @property
    def uses_group(self) -> bool:
        """No: the first of `groups` is used."""
        return False

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As for every policy, with one epoch at each group."""
        return {"milestones": list(range(1, len(self.groups)))}, len(self.groups)


def scheduled_group(epoch: int, groups: Sequence[int], milestones: Sequence[int]) -> int:
    """Return the group of an epoch (from 0): `groups[i]` once `i` of the rising milestones have passed."""
    return groups[bisect_right(milestones, epoch)]


class ScheduleScan(OneGroup):
    """Uses the groups of a list in turn. They are all known to read-ahead in advance."""

    by_epoch = True

    def __init__(self, groups: Sequence[int], milestones: Sequence[int]) -> None:
        super().__init__(groups[0], groups)
        self._groups = groups
        self._milestones = milestones

    def group(self, epoch: int, record: int) -> int | None:  # noqa: ARG002
        """Return the epoch's group."""
        return scheduled_group(epoch, self._groups, self._milestones)

    def observe(self, update: Update) -> None:
        """Report the next epoch's group if it changes."""
        following = scheduled_group(update.epoch + 1, self._groups, self._milestones)
        if update.ends_epoch and following != self.current:
            self.choose(Decision(following, "given"))


@register("scan", "schedule", ScheduleConfig)
def open_schedule(config: ScheduleConfig, run: PolicyInputs) -> ScheduleScan:  # noqa: ARG001
    """Open the policy, which needs nothing of the run."""
    return ScheduleScan(config.groups, config.milestones)


_WEIGHTS = Bound(
    lambda weights: bool(weights) and all(0 <= weight < math.inf for weight in weights) and weights[0] > 0,
    "finite weights of 0 or more, the first above 0",
)


@dataclass(kw_only=True, slots=True)
class MixtureConfig(CandidatesConfig):
    """Draw each record's group from the candidates around `group`."""

    weights: Annotated[list[float], _WEIGHTS] = field(default_factory=lambda: [10.0, 1.0])
    """Weights of `group`, of the candidates next to it, of the next ones, and so on; all others: 0."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        require_start(self)


def probabilities(
    candidates: Sequence[int], selected: int, weights: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return each candidate's probability, [len(candidates)], by its distance in the list from `selected`.

    `weights[0]` applies to `selected`, `weights[d]` to each candidate d places away. Further away it is 0.
    """
    import numpy as np

    middle = candidates.index(selected)
    distances = [abs(i - middle) for i in range(len(candidates))]
    shares = np.array([weights[d] if d < len(weights) else 0.0 for d in distances])
    return shares / shares.sum()


class MixtureScan(OneGroup):
    """Draws a group from (seed, epoch, record): the same for every worker and rank, and after a resume."""

    by_epoch = True

    def __init__(self, selected: int, candidates: Sequence[int], weights: Sequence[float], seed: int) -> None:
        import numpy as np

        super().__init__(selected, candidates)
        self._ends: list[float] = np.cumsum(probabilities(self.candidates, selected, weights)).tolist()
        self._seed = seed

    def group(self, epoch: int, record: int) -> int | None:
        """Return the group drawn for the record in the epoch."""
        from pcr_exp.system.randomness import Purpose, stream

        draw = stream(self._seed, Purpose.SCAN_GROUP, epoch, record).random()
        # Scaled by the last end, which rounding may keep from being exactly 1.
        return self.candidates[bisect_right(self._ends, draw * self._ends[-1])]


@register("scan", "mixture", MixtureConfig)
def open_mixture(config: MixtureConfig, run: PolicyInputs) -> MixtureScan:
    """Open the policy; the run's seed determines all draws."""
    return MixtureScan(config.group, config.candidates, config.weights, run.seed)


@dataclass(kw_only=True, slots=True)
class CachedConfig(PolicyConfig):
    """Read at `group`, but take some of the records in a cache at `cached_group` instead."""

    cached_group: int = 2
    """Scan group up to which the cache holds records."""
    cache_mib: Annotated[float, above(0, "more than 0")] = 1024.0
    """MiB of the planned cache, part of a run's identity. `storage.cache_mib` must hold the plan."""
    share: Annotated[float, Bound(lambda share: 0 <= share <= 1, "a share, 0 to 1")] = 0.5
    """Share of the cached records taken at `cached_group` in each epoch except the first."""

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        self._check_lower()

    def fit(self, num_groups: int) -> None:
        """As for every policy, and check the groups again: records with fewer groups may lower `group`."""
        PolicyConfig.fit(self, num_groups)
        self._check_lower()

    def _check_lower(self) -> None:
        lower = 1 <= self.cached_group < self.group
        require(lower, "scan.cached_group", self.cached_group, f"a scan group below scan.group={self.group}")

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As for every policy. The first epoch reads everything at `group`, the second draws."""
        return {}, 2


def planned_cache(index: RecordIndex, group: int, max_bytes: float, seed: int) -> dict[int, int]:
    """Return the records that a cache of `max_bytes` should hold up to `group`, with the bytes of each.

    These are the first records of a permutation given by the seed, up to the first that does not fit.
    """
    import numpy as np

    from pcr_exp.system.randomness import Purpose, stream

    line = stream(seed, Purpose.CACHED).permutation(len(index.records))
    num_bytes = index.prefixes_bytes(group)[line]
    num_kept = int(np.searchsorted(np.cumsum(num_bytes), max_bytes, side="right"))
    return dict(zip(line[:num_kept].tolist(), num_bytes[:num_kept].tolist(), strict=True))


class CachedScan(OneGroup):
    """Draws a group from (seed, epoch, record): the same for every worker and rank, and after a resume."""

    by_epoch = True

    def __init__(self, config: CachedConfig, index: RecordIndex, seed: int) -> None:
        super().__init__(config.group, [config.cached_group, config.group])
        self._planned = planned_cache(index, config.cached_group, config.cache_mib * MIB, seed)
        self.kept_bytes = self._planned
        self._cached_group = config.cached_group
        self._share = config.share
        self._seed = seed

    def group(self, epoch: int, record: int) -> int | None:
        """Return the lower group if the record was drawn for it, otherwise the full one."""
        from pcr_exp.system.randomness import Purpose, stream

        if epoch == 0 or record not in self._planned:
            return self.current
        draw = stream(self._seed, Purpose.CACHED, epoch, record).random()
        return self._cached_group if draw < self._share else self.current


@register("scan", "cached", CachedConfig)
def open_cached(config: CachedConfig, run: PolicyInputs) -> CachedScan:
    """Open the policy; the run's seed and the records' sizes determine its plan."""
    return CachedScan(config, run.index, run.seed)
