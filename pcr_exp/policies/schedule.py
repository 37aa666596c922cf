"""`schedule`: a fixed curriculum of scan groups over epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.scan import PolicyConfig, require_groups
from pcr_exp.config.scan_scripts import groups_of_script
from pcr_exp.policies.policy import Decision, OneGroup, PolicyInputs, Update


@dataclass(kw_only=True, slots=True)
class ScheduleConfig(PolicyConfig):
    """A fixed curriculum: `groups[0]` until `milestones[0]` epochs are done, then `groups[1]`, and so on."""

    groups: list[int] = field(default_factory=lambda: [1, 2, 5, 10])
    """Scan groups, one after the other."""
    milestones: list[int] = field(default_factory=lambda: [5, 10, 20])
    """Epochs after which the next of `groups` holds."""

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        require_groups("scan.groups", self.groups)
        wanted = f"rising epochs from 1 on, one less than scan.groups={self.groups} has groups"
        rising = self.milestones == sorted(set(self.milestones)) and min(self.milestones, default=1) >= 1
        fits = rising and len(self.milestones) == len(self.groups) - 1
        require(fits, "scan.milestones", self.milestones, wanted)
        self.group = self.groups[0]

    def fit(self, num_groups: int) -> None:
        """As every policy's, and the groups of the curriculum."""
        PolicyConfig.fit(self, num_groups)
        self.groups = groups_of_script("scan.groups", self.groups, num_groups)

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As every policy's: an epoch at each group."""
        return {"milestones": list(range(1, len(self.groups)))}, len(self.groups)


def scheduled_group(epoch: int, groups: Sequence[int], milestones: Sequence[int]) -> int:
    """The group of an epoch (from 0): `groups[i]` after `i` of the rising milestones have passed."""
    return groups[bisect_right(milestones, epoch)]


class ScheduleScan(OneGroup):
    """The groups of a list, one after the other. Reading ahead knows them all."""

    by_epoch = True

    def __init__(self, groups: Sequence[int], milestones: Sequence[int]) -> None:
        super().__init__(groups[0], groups)
        self._groups = groups
        self._milestones = milestones

    def group(self, epoch: int, record: int) -> int | None:  # noqa: ARG002
        """The epoch's group."""
        return scheduled_group(epoch, self._groups, self._milestones)

    def observe(self, update: Update) -> None:
        """Tell of the next epoch's group, if it is another."""
        following = scheduled_group(update.epoch + 1, self._groups, self._milestones)
        if update.ends_epoch and following != self.current:
            self.choose(Decision(following, "given"))


@register("scan", "schedule", ScheduleConfig)
def open_schedule(config: ScheduleConfig, run: PolicyInputs) -> ScheduleScan:  # noqa: ARG001
    """Needs nothing of the run."""
    return ScheduleScan(config.groups, config.milestones)
