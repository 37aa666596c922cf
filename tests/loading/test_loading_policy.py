"""The one policy there is: always the same group."""

import pytest

from pcr_exp.config.scan import ScanConfig
from pcr_exp.loading.policy import open_policy


@pytest.mark.parametrize("group", [1, 7])
def test_static_scan(group: int) -> None:
    policy = open_policy(ScanConfig(name=f"group_{group}", group=group))
    policy.observe({"kind": "train", "train_loss": 1.0})
    assert {policy.group(epoch, record) for epoch in range(3) for record in range(3)} == {group}
    state = policy.state_dict()
    policy.load_state_dict(state)
    assert state == {}
    assert policy.group(9, 9) == group
