"""`balanced`: the highest fidelity at which the trainer does not wait, as storage and trainer vary.

This policy is our own. Every few updates, it compares what training consumed with what storage supplied while
it had reads, and chooses the group whose bytes fit. If storage supplies more than is consumed, reads end
early, so the policy sees without a trial that a higher group fits. (If only many reads in flight hide the
latency of storage, it looks slower than it is while reading is far enough ahead.) The cost of decoding has to
be tried: the policy leaves a group again if training is slower there although the bytes fit (`pace`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from omegaconf import MISSING

from pcr_exp.config.check import INNER_SHARE, at_least, require
from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig, ScanConfig, require_start
from pcr_exp.config.scan_scripts import NUM_GROUPS
from pcr_exp.policies.pace import Interval, Pace, balanced_group, supplied_per_s
from pcr_exp.policies.policy import Decision, OneGroup, PolicyInputs, Probe, ScanPolicy, Update, open_policy

if TYPE_CHECKING:
    from pcr_exp.policies.consensus import Consensus
    from pcr_exp.storage.protocol import Counts

_MEMORY = 0.5
"""Factor on past sums per new interval: a new bandwidth dominates after two or three intervals."""


@dataclass(kw_only=True, slots=True)
class BalancedConfig(CandidatesConfig):
    """Use the highest candidate at which training does not wait for data, as storage and trainer allow."""

    group: int = 1
    candidates: list[int] = field(default_factory=lambda: list(range(1, NUM_GROUPS + 1)))
    floor: ScanConfig = MISSING
    """A scan group or a policy that sets the lowest group to read: `scan@scan.floor=<option>`."""
    every_steps: Annotated[int, at_least(1)] = 10
    """Updates between two decisions."""
    headroom: Annotated[float, at_least(0, "a share of 0 or more")] = 0.1
    """Share by which supply at a higher group must exceed consumption before it is chosen."""
    max_slowdown: Annotated[float, INNER_SHARE] = 0.05
    """Share of a lower group's images/s that a group may lose to decoding while storage keeps up."""

    def __post_init__(self) -> None:
        CandidatesConfig.__post_init__(self)
        require_start(self)
        plain = not isinstance(self.floor, BalancedConfig) and self.floor.encoding == "pcr"
        wanted = "a scan group of progressive records, or another policy"
        require(plain, "scan.floor", self.floor.name, wanted)

    def fit(self, num_groups: int) -> None:
        """As for every policy, and for the floor."""
        CandidatesConfig.fit(self, num_groups)
        self.floor.fit(num_groups)

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As for every policy, and for the floor, with a decision every second update."""
        floor, num_epochs = self.floor.at_smoke_size()
        return {"every_steps": 2, **{f"floor.{name}": value for name, value in floor.items()}}, num_epochs

    def num_probed(self, num_train: int, num_fresh: int, batch_size: int) -> int:
        """As for the floor, which alone has probes."""
        return self.floor.num_probed(num_train, num_fresh, batch_size)

    @property
    def uses_tune_split(self) -> bool:
        return self.floor.uses_tune_split


class BalancedScan(OneGroup):
    """Never reads below its floor, which is itself a policy with its own probes and decisions."""

    def __init__(
        self,
        config: BalancedConfig,
        floor: ScanPolicy,
        bytes_per_image: Mapping[int, float],
        counts: Callable[[], Counts],
        consensus: Consensus,
    ) -> None:
        """Choose among the candidates and the floor's current group.

        Args:
            config: The settings.
            floor: Its group is read if this policy's is lower.
            bytes_per_image: Sizes of the candidates, and of every group that the floor may choose.
            counts: Returns what storage delivered so far, and how long it was busy.
        """
        super().__init__(config.group, bytes_per_image)
        self._floor = floor
        self._bytes_per_image = dict(bytes_per_image)
        self._own_candidates = frozenset(config.candidates)
        self._counts = counts
        self._consensus = consensus
        self._every_steps = config.every_steps
        self._headroom = config.headroom
        self._past = Interval()
        self._pace = Pace(config.max_slowdown)
        self._floor_group = min(floor.candidates)
        self._began: tuple[float, ...] | None = None
        self._num_steps, self._num_images, self._is_settled = 0, 0, True

    def group(self, epoch: int, record: int) -> int | None:
        """Return the current group or the floor's, if higher; None while the floor is undecided."""
        floor = self._floor.group(epoch, record)
        return None if floor is None else max(floor, self.current)

    def observe(self, update: Update) -> None:
        """Count the update; decide every `every_steps` updates."""
        self._floor.observe(update)
        counts = self._counts()
        now = (update.train_s, update.wait_s, counts.bytes_read, counts.busy_s)
        if self._began is None:  # the time of a session's first update is unknown
            self._began = now
            return
        self._num_steps += 1
        self._num_images += update.num_fresh  # echoed images cost storage nothing
        self._is_settled = self._is_settled and update.group == max(self.current, self._floor_group)
        if self._num_steps == self._every_steps:
            passed = [after - before for after, before in zip(now, self._began, strict=True)]
            *agreed, settled = self._consensus.mean([self._num_images, *passed, self._is_settled])
            self._decide(Interval(*agreed), is_settled=settled == 1)
            self._began = now
            self._num_steps, self._num_images, self._is_settled = 0, 0, True

    def _decide(self, interval: Interval, *, is_settled: bool) -> None:
        self._past = self._past.then(interval, _MEMORY)
        bytes_per_s, consumed_per_s = self._past.bytes_per_s, self._past.consumed_per_s
        if bytes_per_s is None:
            return
        read = max(self.current, self._floor_group)
        lowest = self._floor_group
        storage_keeps_up = bytes_per_s >= consumed_per_s * self._bytes_per_image[read]
        if is_settled and storage_keeps_up:
            self._pace.observe(read, interval.delivered_per_s, interval.wait_share, lowest=lowest)
        allowed = {lowest, *(group for group in self._own_candidates if group > lowest)}
        sizes = {group: size for group, size in self._bytes_per_image.items() if group in allowed}
        supplied = supplied_per_s(bytes_per_s, sizes, self._pace.too_slow)
        # From a group of unknown speed, only go down: a higher group would have nothing to compare with.
        highest = max(sizes) if self._pace.is_known(read) else read
        open_groups = self._pace.fast_enough(sizes) or {lowest}
        affordable = {g: rate for g, rate in supplied.items() if g in open_groups and g <= highest}
        # The current group may have been an earlier group of the floor, which only the floor may choose.
        current = max((group for group in sizes if group <= self.current), default=lowest)
        chosen = balanced_group(current, consumed_per_s, affordable, self._headroom)
        if chosen != read:
            self.choose(Decision(chosen, "images_per_s", supplied))
        self.current = chosen

    def wanted_probe(self, epoch: int) -> Probe | None:
        """Return the floor's probe."""
        return self._floor.wanted_probe(epoch)

    def decide(self, scores: Mapping[int, float]) -> None:
        """Let the floor decide."""
        self._floor.decide(scores)

    def take_decision(self) -> Decision | None:
        """Return the floor's decision or this policy's own, with the group that is actually read."""
        own, floor = super().take_decision(), self._floor.take_decision()
        if floor is not None:
            self._floor_group = floor.group
        news = floor or own
        return None if news is None else replace(news, group=max(self.current, self._floor_group))

    def state_dict(self) -> dict[str, Any]:
        """Return the group, measured rates and the floor's state; counts of the current interval are lost."""
        return {
            **super().state_dict(),
            "past": list(astuple(self._past)),
            "pace": self._pace.state_dict(),
            "floor_group": self._floor_group,
            "floor": self._floor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state; counting restarts with the first update."""
        super().load_state_dict(state)
        self._past = Interval(*state["past"])
        self._pace.load_state_dict(state["pace"])
        self._floor_group = state["floor_group"]
        self._floor.load_state_dict(state["floor"])


@register("scan", "balanced", BalancedConfig)
def open_balanced(config: BalancedConfig, run: PolicyInputs) -> BalancedScan:
    """Open the policy and its floor, with the mean bytes per image of the run's records."""
    floor = open_policy(config.floor, run)
    groups = sorted({*config.candidates, *floor.candidates})
    sizes = {group: run.index.mean_prefix_bytes(group) for group in groups}
    return BalancedScan(config, floor, sizes, run.counts, run.consensus)
