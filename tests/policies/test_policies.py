"""Scan policies one by one, without a loader: what they choose and when, also after a resume."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pcr_exp.config.scan import ScanConfig
from pcr_exp.policies.consensus import SingleRank
from pcr_exp.policies.plateau import PlateauConfig, cheapest_within, is_plateau
from pcr_exp.policies.policy import (
    CosineProbe,
    Decision,
    OneGroup,
    PolicyInputs,
    ScanPolicy,
    SimilarityProbe,
    TrialProbe,
    Update,
    open_policy,
)
from pcr_exp.policies.schedule import MixtureConfig, ScheduleConfig, probabilities, scheduled_group
from pcr_exp.policies.smallest import CosineConfig, MssimConfig
from pcr_exp.records.index import RecordEntry, RecordIndex

INDEX = RecordIndex(
    *("photos", "train", "pcr", "", 10, {}),
    [RecordEntry("0.pcr", 10, tuple(1000 * group for group in range(1, 11)), 30)],
)


def opened(config: ScanConfig, seed: int = 0) -> ScanPolicy:
    return open_policy(config, PolicyInputs(seed, SingleRank(), INDEX))


def update(epoch: int, loss: float = 1.0, *, ends_epoch: bool = True, num_images: int = 8) -> Update:
    return Update(epoch, ends_epoch, num_images, num_images, group=5, loss=loss, train_s=0.0, wait_s=0.0)


def continued(policy: ScanPolicy, config: ScanConfig) -> ScanPolicy:
    """Return a new policy with the first one's state, as restored from a checkpoint."""
    fresh = opened(config)
    state = policy.state_dict()
    fresh.load_state_dict(state)
    return fresh


@pytest.mark.parametrize("group", [1, 7])
def test_static_scan(group: int) -> None:
    policy = opened(ScanConfig(name=f"group_{group}", group=group))
    policy.observe(update(0))
    policy.decide({})
    assert {policy.group(epoch, record) for epoch in range(3) for record in range(3)} == {group}
    assert policy.candidates == (group,)
    assert policy.wanted_probe(0) is None
    assert policy.take_decision() is None
    state = policy.state_dict()
    policy.load_state_dict(state)
    assert state == {}
    assert policy.group(9, 9) == group


def test_schedule_changes_group_at_its_milestones() -> None:
    config = ScheduleConfig(name="schedule", groups=[2, 5, 1], milestones=[1, 4])
    policy = opened(config)
    assert [policy.group(epoch, 0) for epoch in range(6)] == [2, 5, 5, 5, 1, 1]
    assert policy.candidates == (1, 2, 5)
    assert config.group == 2, "the one that it begins with"


def test_schedule_tells_when_it_changed() -> None:
    config = ScheduleConfig(name="schedule", groups=[2, 5], milestones=[2])
    policy = opened(config)
    told = [policy.take_decision()]
    for epoch in range(4):
        policy.observe(update(epoch, ends_epoch=False))
        assert policy.take_decision() is None
        policy.observe(update(epoch))
        told.append(policy.take_decision())
        policy = continued(policy, config)
    assert told == [Decision(2, "given"), None, Decision(5, "given"), None, None]


@given(st.lists(st.integers(1, 30), unique=True).map(sorted), st.integers(0, 40))
def test_scheduled_group_counts_the_milestones_passed(milestones: list[int], epoch: int) -> None:
    groups = list(range(100, 101 + len(milestones)))
    assert scheduled_group(epoch, groups, milestones) == 100 + sum(epoch >= m for m in milestones)


def test_mixture_weights_are_by_distance_from_the_selected_group() -> None:
    assert probabilities([1, 2, 5, 10], 2, [8, 1]).tolist() == [0.1, 0.8, 0.1, 0]
    assert probabilities([1, 2, 5, 10], 10, [2, 1, 1]).tolist() == [0, 0.25, 0.25, 0.5]
    assert probabilities([1, 2], 1, [3]).tolist() == [1, 0]


def test_mixture_draws_what_its_weights_say() -> None:
    config = MixtureConfig(name="mixture", group=5, weights=[10, 2, 1])
    policy = opened(config)
    drawn = Counter(policy.group(epoch, record) for epoch in range(40) for record in range(100))
    expected = [4000 * share for share in probabilities([1, 2, 5, 10], 5, [10, 2, 1])]
    assert chisquare([drawn[group] for group in (1, 2, 5, 10)], expected).pvalue > 0.01
    # Draws differ between epochs and between records.
    assert len({tuple(policy.group(epoch, record) for record in range(30)) for epoch in range(20)}) == 20


def test_mixture_is_a_function_of_seed_epoch_and_record() -> None:
    config = MixtureConfig(name="mixture", group=2, weights=[1, 1])

    def drawn(policy: ScanPolicy, epochs: Any) -> dict[Any, int | None]:
        return {(epoch, record): policy.group(epoch, record) for epoch in epochs for record in range(50)}

    policy = opened(config)
    first = drawn(policy, range(4))
    assert drawn(opened(config), [3, 1, 0, 2]) == {key: first[key] for key in drawn(policy, [3, 1, 0, 2])}
    assert drawn(continued(policy, config), range(4)) == first
    assert drawn(opened(config, seed=1), range(4)) != first


@pytest.mark.parametrize(
    ("config", "chosen"),
    [
        (MssimConfig(name="mssim", threshold=0.8), 2),
        (CosineConfig(name="cosine", threshold=0.8, first_epoch=0), 5),
        (CosineConfig(name="cosine", threshold=0.99, first_epoch=0), 10),
    ],
)
def test_mssim_takes_what_reaches_the_threshold_and_cosine_what_exceeds_it(
    config: ScanConfig, chosen: int
) -> None:
    policy = opened(config)
    policy.decide({1: 0.5, 2: 0.8, 5: 0.99})
    assert policy.group(0, 0) == chosen


def test_cheapest_within_tolerance_of_the_best() -> None:
    losses = {1: 1.30, 2: 1.05, 5: 1.0, 10: 1.01}
    assert cheapest_within(losses, 0.0) == 5
    assert cheapest_within(losses, 0.05) == 2
    assert cheapest_within(losses, 0.5) == 1
    assert cheapest_within({1: 0.0, 2: 0.0}, 0.0) == 1


def test_mssim_reads_nothing_before_it_has_measured_and_then_one_group() -> None:
    config = MssimConfig(name="mssim", threshold=0.95, num_images=3)
    policy = opened(config)
    assert policy.group(0, 0) is None
    assert policy.wanted_probe(0) == SimilarityProbe((1, 2, 5, 10), 3)
    scores = {1: 0.8, 2: 0.96, 5: 0.99, 10: 1.0}
    policy.decide(scores)
    assert {policy.group(epoch, 3) for epoch in range(99)} == {2}
    assert policy.wanted_probe(0) is None
    assert policy.take_decision() == Decision(2, "ms_ssim", scores)
    resumed = continued(policy, config)
    assert resumed.group(0, 0) == 2
    assert resumed.wanted_probe(0) is resumed.take_decision() is None


def test_mssim_takes_all_groups_if_no_candidate_will_do() -> None:
    policy = opened(MssimConfig(name="mssim", threshold=0.95, candidates=[1, 2]))
    assert policy.candidates == (1, 2, 10)
    policy.decide({1: 0.5, 2: 0.6})
    assert policy.group(0, 0) == 10


def test_cosine_probes_when_due_and_keeps_later_epochs_undecided() -> None:
    config = CosineConfig(name="cosine", threshold=0.8, first_epoch=2, every_epochs=3, num_images=7)
    policy = opened(config)
    assert policy.take_decision() == Decision(10, "given")
    assert [policy.group(epoch, 0) for epoch in range(4)] == [10, 10, None, None]
    assert [policy.wanted_probe(epoch) for epoch in range(3)] == [None, None, CosineProbe((1, 2, 5, 10), 7)]
    policy.decide({1: 0.8, 2: 0.81, 5: 0.9, 10: 1.0})
    assert [policy.group(epoch, 0) for epoch in range(2, 7)] == [2, 2, 2, None, None]
    policy = continued(policy, config)
    unreported = Decision(2, "cosine", {1: 0.8, 2: 0.81, 5: 0.9, 10: 1.0})
    assert policy.take_decision() == unreported, "a checkpoint may come before the decision's row"
    policy = continued(policy, config)
    assert policy.take_decision() is None
    assert [policy.wanted_probe(epoch) is None for epoch in range(2, 6)] == [True, True, True, False]
    policy.decide({1: 0.1, 2: 0.2, 5: 0.3, 10: 0.4})
    assert policy.group(5, 0) == 10, "none exceeds the threshold: all groups"


@pytest.mark.parametrize(
    ("losses", "flat"),
    [
        ([], False),
        ([1.0], False),
        ([1.0, 0.9, 0.8], False),
        ([1.0, 0.9, 0.895, 0.9], True),
        ([1.0, 0.9, 0.92, 0.88], False),
        ([1.0, 0.8, 0.9, 0.85], True),
        ([1.0, 1.0, 1.0], True),
    ],
)
def test_plateau_detection(losses: list[float], flat: bool) -> None:
    assert is_plateau(losses, patience_epochs=2, min_drop=0.01) is flat


PLATEAU = PlateauConfig(name="plateau", patience_epochs=2, tolerance=0.02, trial_steps=5)


def test_plateau_tries_one_epoch_after_it_saw_the_plateau() -> None:
    policy = opened(PLATEAU)
    losses = {0: 1.0, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}
    decided, wanted = [], []
    for epoch, loss in losses.items():
        wanted.append(policy.wanted_probe(epoch))
        # Reading may already be in the next epoch, unless a trial comes first.
        decided.append([policy.group(epoch, 0), policy.group(epoch + 1, 0)])
        policy.observe(update(epoch, loss))
        policy = continued(policy, PLATEAU)
    assert wanted == [None] * 5
    assert decided == [[10, 10]] * 4 + [[10, None]]
    assert policy.wanted_probe(5) == TrialProbe((1, 2, 5, 10), 5, "train")
    policy.decide({1: 0.6, 2: 0.505, 5: 0.5, 10: 0.52})
    assert policy.take_decision() == Decision(2, "train_loss", {1: 0.6, 2: 0.505, 5: 0.5, 10: 0.52})
    assert [policy.group(epoch, 0) for epoch in (5, 6, 7)] == [2, 2, None]
    for epoch in (5, 6):
        policy.observe(update(epoch, 0.5))
        assert policy.wanted_probe(epoch + 1) is None, "losses count anew"


def test_an_epoch_s_loss_is_weighted_by_images_also_across_a_resume() -> None:
    """0.5 on 3 images and 0.9 on 1 average 0.6, as in epoch 2: a plateau. Unweighted, 0.7 falls to 0.6."""
    policy = opened(PlateauConfig(name="plateau", patience_epochs=1))
    for epoch, losses in enumerate([(0.5, 0.9), (0.6, 0.6)]):
        policy.observe(update(epoch, losses[0], ends_epoch=False, num_images=3))
        policy = continued(policy, PlateauConfig(name="plateau", patience_epochs=1))
        policy.observe(update(epoch, losses[1], num_images=1))
    assert policy.group(3, 0) is None


def test_a_state_of_0_2_0_has_no_unreported_decision() -> None:
    policy = opened(PLATEAU)
    policy.load_state_dict({key: value for key, value in policy.state_dict().items() if key != "news"})
    assert policy.take_decision() is None


def test_an_unreported_decision_passes_through_json_with_its_own_columns() -> None:
    policy, resumed = OneGroup(5, [2]), OneGroup(5, [2])
    decision = Decision(2, "mine", {2: 0.5, 5: 0.75}, {"num_tried": 3})
    policy.choose(decision)
    resumed.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    assert resumed.take_decision() == decision


def test_plateau_judged_on_tune_says_so() -> None:
    policy = opened(PlateauConfig(name="plateau", patience_epochs=1, judge="tune"))
    for epoch in range(2):
        policy.observe(update(epoch))
    assert policy.wanted_probe(3) == TrialProbe((1, 2, 5, 10), 20, "tune")
    policy.decide({1: 0.5, 10: 0.5})
    decision = policy.take_decision()
    assert decision is not None
    assert decision.measure == "tune_loss"
