"""`schedule`: a fixed curriculum of scan groups over epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pcr_exp.policies.policy import Decision, OneGroup, Update


def scheduled_group(epoch: int, groups: Sequence[int], milestones: Sequence[int]) -> int:
    """The group of an epoch (from 0): `groups[i]` after `i` of the rising milestones have passed."""
    return groups[bisect_right(milestones, epoch)]


class ScheduleScan(OneGroup):
    """The groups of a list, one after the other. Reading ahead knows them all."""

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
