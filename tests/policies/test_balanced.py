"""`balanced` on simulated storage and a simulated trainer, with a simulated clock."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcr_exp.config.scan import ScanConfig
from pcr_exp.policies.balanced import BalancedConfig, BalancedScan
from pcr_exp.policies.consensus import SingleRank
from pcr_exp.policies.pace import Interval, balanced_group, supplied_per_s
from pcr_exp.policies.policy import CosineProbe, Decision, OneGroup, ScanPolicy, StaticScan, Update
from pcr_exp.policies.schedule import ScheduleScan
from pcr_exp.policies.smallest import SmallestScan
from pcr_exp.storage.protocol import Counts

# Share of ImageNet's bytes up to each group; images have 108 kB on average.
SHARES = (0.063, 0.143, 0.210, 0.282, 0.463, 0.611, 0.622, 0.700, 0.782, 1.0)
BYTES = {group: 108e3 * share for group, share in enumerate(SHARES, start=1)}
BATCH = 64
AHEAD = 6


def ideal(bytes_per_s: float, images_per_s: float, headroom: float = 0.0) -> int:
    """Return the highest group whose bytes arrive as fast as they are consumed."""
    wanted = images_per_s * (1 + headroom)
    return max((group for group, size in BYTES.items() if size * wanted <= bytes_per_s), default=1)


class Simulation:
    """One record is one batch. Records are read one after the other, `AHEAD` records in advance."""

    def __init__(
        self,
        bandwidth: Callable[[float], float],
        images_per_s: float,
        *,
        jitter: float = 0.0,
        echo_factor: float = 1.0,
    ) -> None:
        self.bandwidth = bandwidth
        self.images_per_s = images_per_s
        self.decode_per_s: dict[int, float] = {}
        self.handover_s = 0.0
        self.slowdown: dict[int, float] = {}
        self.now_s = self.train_s = self.wait_s = 0.0
        self.random = random.Random(0)
        self.jitter = jitter
        self.echo_factor = echo_factor
        self.done: list[tuple[float, float, float, int]] = []  # end, bytes, seconds, group
        self.groups: list[int] = []
        self.waits: list[float] = []
        self.decisions: list[Decision] = []

    def counts(self) -> Counts:
        arrived = [(size, took) for end, size, took, _ in self.done if end <= self.now_s]
        num_bytes = int(sum(size for size, _ in arrived))
        return Counts(bytes_read=num_bytes, busy_s=sum(took for _, took in arrived))

    def read(self, policy: ScanPolicy) -> None:
        group = policy.group(0, len(self.done))
        assert group is not None
        start_s = max(self.now_s, self.done[-1][0] if self.done else 0.0)
        took_s = BATCH * BYTES[group] / self.bandwidth(start_s)
        self.done.append((start_s + took_s, BATCH * BYTES[group], took_s, group))

    def run(self, policy: ScanPolicy, num_updates: int) -> None:
        first = len(self.groups)
        for _ in range(AHEAD if first == 0 else 0):
            self.read(policy)
        for i in range(first, first + num_updates):
            self.read(policy)
            arrived_s, _, _, group = self.done[i]
            uses = round(BATCH * self.echo_factor)
            train_s = uses / self.images_per_s * self.random.uniform(1 - self.jitter, 1 + self.jitter)
            train_s *= 1 + self.slowdown.get(group, 0.0)
            decode_s = max(0.0, BATCH / self.decode_per_s.get(group, math.inf) - train_s)
            waited_s = max(0.0, arrived_s - self.now_s) + decode_s + self.handover_s
            self.now_s += waited_s + train_s
            self.train_s += train_s
            self.wait_s += waited_s
            self.waits.append(waited_s / (waited_s + train_s))
            self.groups.append(group)
            policy.observe(Update(0, False, uses, BATCH, group, 1.0, self.train_s, self.wait_s))
            if (decision := policy.take_decision()) is not None:
                self.decisions.append(decision)


def balanced(simulation: Simulation, floor: ScanPolicy | None = None, **given: Any) -> BalancedScan:
    config = BalancedConfig(name="balanced", floor=ScanConfig(name="group_1", group=1), **given)  # type: ignore[arg-type]
    return BalancedScan(config, floor or StaticScan(1), BYTES, simulation.counts, SingleRank())


@settings(max_examples=60, deadline=None)
@given(
    bytes_per_s=st.floats(1e6, 400e6),
    images_per_s=st.floats(100, 4000),
    jitter=st.sampled_from([0.0, 0.3]),
)
def test_it_settles_where_the_trainer_does_not_wait(
    bytes_per_s: float, images_per_s: float, jitter: float
) -> None:
    simulation = Simulation(lambda _: bytes_per_s, images_per_s, jitter=jitter)
    policy = balanced(simulation)
    simulation.run(policy, 200)
    settled = simulation.groups[-100:]
    # With jitter, consumption is known to a few per cent, so the group lies between two limits.
    slack = 0.1 * (jitter > 0)
    lowest = ideal(bytes_per_s, images_per_s, headroom=0.1 + slack)
    highest = ideal(bytes_per_s, images_per_s * (1 - slack))
    assert lowest <= min(settled) <= max(settled) <= highest
    assert jitter or len(set(settled)) == 1, "no oscillation"
    if ideal(bytes_per_s, images_per_s) > 1:
        assert sum(simulation.waits[-100:]) / 100 < 0.05 + slack


def test_echoed_images_need_no_bandwidth() -> None:
    plain, echoed = (Simulation(lambda _: 28e6, 1000.0, echo_factor=factor) for factor in (1, 3))
    for simulation in (plain, echoed):
        simulation.run(balanced(simulation), 100)
    assert plain.groups[-1] == ideal(28e6, 1000.0)
    assert echoed.groups[-1] == ideal(28e6, 1000.0 / 3) > plain.groups[-1]


def test_it_follows_a_bandwidth_that_halves_and_recovers() -> None:
    images_per_s, full = 1000.0, 80e6

    def bandwidth(now_s: float) -> float:
        return full / 2 if 30 <= now_s < 60 else full

    simulation = Simulation(bandwidth, images_per_s, jitter=0.05)
    policy = balanced(simulation)
    ends: list[float] = []
    while simulation.now_s < 90:
        simulation.run(policy, 1)
        ends.append(simulation.now_s)

    def groups(start_s: float, end_s: float) -> set[int]:
        return {g for g, end in zip(simulation.groups, ends, strict=True) if start_s < end <= end_s}

    assert ideal(full, images_per_s, 0.1) == 7 and ideal(full / 2, images_per_s, 0.1) == 4
    # Ten updates take 0.64 s. The group settles within 6 s of a change and then stays.
    assert groups(5, 30) == {7}
    assert groups(36, 60) <= {4}
    assert groups(66, 90) == {7}
    assert len(simulation.decisions) <= 3 * 4, "few changes, not a flutter"
    # Static group 7 would have waited for half of the time in which bandwidth was halved.
    assert simulation.wait_s / simulation.now_s < 0.06


def test_decoding_that_is_the_limit_is_found_out_and_remembered() -> None:
    """Storage affords group 10, but from group 6 on decoding is slower than the trainer."""
    simulation = Simulation(lambda _: 1e9, 1000.0)
    simulation.decode_per_s = dict.fromkeys(range(6, 11), 700.0)
    policy = balanced(simulation)
    simulation.run(policy, 300)
    # Groups 1, 10, 5, 7 and 6 are compared over three intervals of ten updates each, `AHEAD` apart.
    assert set(simulation.groups[200:]) == {5}
    assert sum(simulation.waits[200:]) == 0
    simulation.decode_per_s = {}
    simulation.run(policy, 400)
    assert simulation.groups[-1] == 10, "a limit is forgotten after a while"


@pytest.mark.parametrize("start", [1, 10])
def test_what_is_waited_at_every_group_is_not_decodings(start: int) -> None:
    """Handing over a batch takes a tenth of the time, which a lower group would not save."""
    simulation = Simulation(lambda _: 1e9, 1000.0, jitter=0.05)
    simulation.handover_s = 0.1 * BATCH / 1000
    policy = balanced(simulation)
    policy.current = start
    simulation.run(policy, 400)
    assert set(simulation.groups[250:]) == {10}


def test_decoding_that_slows_training_itself_is_found_out() -> None:
    """Decoding and training share cores, so nothing waits, but each image takes longer."""
    simulation = Simulation(lambda _: 1e9, 1000.0, jitter=0.05)
    simulation.slowdown = dict.fromkeys(range(6, 11), 0.2)
    policy = balanced(simulation)
    simulation.run(policy, 400)
    assert set(simulation.groups[350:]) == {5}
    assert len(simulation.decisions) < 12


def test_a_machine_that_slows_down_in_mid_run_keeps_its_fidelity() -> None:
    """From some point on, training takes a quarter longer at every group."""
    simulation = Simulation(lambda _: 1e9, 1000.0, jitter=0.05)
    policy = balanced(simulation)
    simulation.run(policy, 200)
    assert simulation.groups[-1] == 10
    simulation.images_per_s = 800.0
    simulation.run(policy, 600)
    assert set(simulation.groups[-200:]) == {10}


def test_a_decision_tells_the_rates_it_was_made_from() -> None:
    simulation = Simulation(lambda _: 60e6, 1000.0)
    simulation.run(balanced(simulation), 40)
    start, chosen = simulation.decisions
    assert start == Decision(1, "given")
    assert (chosen.group, chosen.measure) == (5, "images_per_s")
    assert chosen.scores == pytest.approx({group: 60e6 / size for group, size in BYTES.items()}, rel=1e-6)


def test_nothing_is_decided_before_storage_has_shown_anything() -> None:
    simulation = Simulation(lambda _: 1e6, 1000.0)
    policy = balanced(simulation, every_steps=1)
    assert policy.take_decision() == Decision(1, "given")
    for step in range(5):
        policy.observe(Update(0, False, 8, 8, 1, 1.0, train_s=float(step), wait_s=0.0))
    assert policy.take_decision() is None


def test_resumed_it_goes_on_at_its_group() -> None:
    simulation = Simulation(lambda _: 60e6, 1000.0)
    policy, resumed = (balanced(simulation, ScheduleScan([2, 1], [3])) for _ in range(2))
    simulation.run(policy, 60)
    state = policy.state_dict()
    assert all(state[key] != resumed.state_dict()[key] for key in ("past", "pace", "floor_group"))
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert resumed.group(0, 0) == policy.group(0, 0) == 5
    assert resumed.take_decision() is None
    simulation.run(resumed, 60)
    assert set(simulation.groups[-60:]) == {5}


def test_resumed_it_learns_its_floor_s_group_if_the_change_was_not_reported() -> None:
    simulation = Simulation(lambda _: 1e6, 1000.0)
    policy = balanced(simulation, ScheduleScan([1, 5], [1]))
    assert policy.take_decision() == Decision(1, "given")
    policy.observe(Update(0, True, 8, 8, 1, 1.0, train_s=1.0, wait_s=0.0))
    resumed = balanced(simulation, ScheduleScan([1, 5], [1]))
    resumed.load_state_dict(policy.state_dict())
    assert resumed.take_decision() == policy.take_decision() == Decision(5, "given")
    assert resumed.state_dict()["floor_group"] == 5


def test_it_never_reads_below_its_floor() -> None:
    simulation = Simulation(lambda _: 1e6, 1000.0)
    policy = balanced(simulation, StaticScan(5))
    simulation.run(policy, 60)
    assert set(simulation.groups) == {5}
    assert simulation.decisions == [Decision(5, "given")], "what is below the floor is no decision"


def test_a_floor_that_probes_is_asked_through_it() -> None:
    probe = CosineProbe((2, 5), 8)
    floor = SmallestScan(5, probe, 10, lambda cosine: cosine > 0.8, "cosine", first_epoch=1, every_epochs=2)
    simulation = Simulation(lambda _: 1e6, 1000.0)
    policy = balanced(simulation, floor)
    assert [policy.group(epoch, 0) for epoch in (0, 1)] == [5, None]
    assert policy.take_decision() == Decision(5, "given")
    assert policy.wanted_probe(0) is None
    assert policy.wanted_probe(1) == probe
    policy.decide({2: 0.9, 5: 0.95})
    assert policy.take_decision() == Decision(2, "cosine", {2: 0.9, 5: 0.95})
    assert [policy.group(epoch, 0) for epoch in (1, 2, 3)] == [2, 2, None]


@pytest.mark.parametrize(
    ("bytes_per_s", "settled"),
    [(30e6, 2), (113e6, 2), (150e6, 10)],  # the second is enough for group 10, but leaves no headroom
)
def test_a_floor_s_group_that_is_no_candidate_is_read_only_while_it_is_the_floor(
    bytes_per_s: float, settled: int
) -> None:
    floor = OneGroup(5, [1, 5, 8])
    simulation = Simulation(lambda _: bytes_per_s, 1000.0)
    policy = balanced(simulation, floor, candidates=[1, 2, 10])
    assert policy.candidates == tuple(BYTES)
    simulation.run(policy, 40)
    assert set(simulation.groups) <= {5, 10}, "8 is neither a candidate nor the floor"
    floor.choose(Decision(1, "given"))
    simulation.run(policy, 150)
    assert simulation.groups[-1] == settled
    assert set(simulation.groups[60:]) <= {1, 2, 10}
    assert all(decision.scores.keys() <= {1, 2, 5, 10} for decision in simulation.decisions)


@pytest.mark.parametrize(
    ("current", "supplied", "chosen"),
    [
        (1, {1: 300, 2: 150, 5: 90}, 2),
        (2, {1: 300, 2: 150, 5: 105}, 2),  # keeps up, but not comfortably
        (5, {1: 300, 2: 150, 5: 105}, 5),  # but is not left for that
        (5, {1: 300, 2: 150, 5: 99}, 2),
        (5, {1: 90, 2: 50, 5: 20}, 1),
        (1, {2: 50, 5: 20}, 2),  # the lowest group available
    ],
)
def test_balanced_group(current: int, supplied: dict[int, float], chosen: int) -> None:
    assert balanced_group(current, 100, supplied, headroom=0.1) == chosen


def test_supply_is_the_slower_of_storage_and_decoding() -> None:
    assert supplied_per_s(1000, {1: 1, 2: 2, 5: 10}, {2: 300}) == {1: 1000, 2: 300, 5: 100}


def test_intervals_add_up_with_a_fading_memory() -> None:
    both = Interval(100, 1, 1, 1000, 2).then(Interval(100, 1, 0, 2000, 1), 0.5)
    assert both == Interval(150, 1.5, 0.5, 2500, 2)
    assert (both.consumed_per_s, both.delivered_per_s, both.wait_share, both.bytes_per_s) == (
        100,
        75,
        0.25,
        1250,
    )
    assert (Interval().consumed_per_s, Interval().delivered_per_s, Interval().wait_share) == (0, 0, 0)
    assert Interval().bytes_per_s is None
