"""`scan=tolerance`: its probe, its choice, and settings refused by key."""

from types import SimpleNamespace
from typing import Any

import pytest

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import ConfigError
from pcr_exp.policies.policy import Decision, ToleranceProbe, open_policy
from pcr_exp.policies.smallest import TolerancePolicyConfig


def opened(**given: Any) -> Any:
    run: Any = SimpleNamespace(index=SimpleNamespace(num_groups=10))
    return open_policy(TolerancePolicyConfig(name="tolerance", **given), run)


def test_nothing_is_read_before_it_has_measured_and_then_one_group() -> None:
    policy = opened(candidates=[1, 2, 5], num_images=30, deployment="same")
    assert policy.candidates == (1, 2, 5, 10)
    assert policy.group(0, 0) is None
    assert policy.wanted_probe(0) == ToleranceProbe((1, 2, 5), 30, 128, "same")
    scores = {1: 0.03, 2: 0.009, 5: -0.001}
    policy.decide(scores)
    assert {policy.group(epoch, 3) for epoch in range(9)} == {2} and policy.wanted_probe(0) is None
    assert policy.take_decision() == Decision(2, "loss_bound", scores)
    resumed = opened(candidates=[1, 2, 5])
    resumed.load_state_dict(policy.state_dict())
    assert resumed.group(0, 0) == 2 and resumed.wanted_probe(0) is None


def test_all_scans_are_read_where_none_is_shown_to_be_enough() -> None:
    policy = opened(candidates=[1, 2])
    policy.decide({1: 0.01, 2: 0.2})
    assert policy.group(0, 0) == 10, "a bound at the margin is not below it"


def test_the_smallest_group_within_the_margin() -> None:
    policy = opened(margin=0.01)
    policy.decide({1: 0.02, 2: 0.004, 5: 0.0})
    assert policy.group(0, 0) == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scan.margin=0", r"scan.margin=0.0: wanted a share in \(0, 1\)"),
        ("scan.deployment=half", "scan.deployment='half': wanted full or same"),
        ("scan.num_images=5", "scan.num_images=5: wanted at least 10"),
        ("scan.image_size=16", "scan.image_size=16: wanted at least 32"),
        ("scan.candidates=[2,1]", r"scan.candidates=\[2, 1\]: wanted every scan group once"),
    ],
)
def test_settings_that_cannot_work_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", TrainConfig, "scan=tolerance", override)
