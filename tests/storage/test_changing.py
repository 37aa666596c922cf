"""Bandwidth that changes with time, on a fake clock."""

from pathlib import Path
from typing import Any

import pytest
from composing import compose

from pcr_exp.config.loader import ChangingStorageConfig, StorageConfig
from pcr_exp.errors import ConfigError
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.open import open_storage
from pcr_exp.storage.throttle import ChangingStorage, Throttle, share_at

MIB = 2**20
HALVING = [10.0, 20.0], [0.5, 1.0]


def test_the_last_change_counts() -> None:
    assert [share_at(s, *HALVING) for s in (0, 9.9, 10, 19.9, 20, 99)] == [1, 1, 0.5, 0.5, 1, 1]
    assert share_at(5, [], []) == 1


@pytest.mark.parametrize("together", [False, True])
def test_reads_take_as_long_as_the_bandwidth_of_their_moment(tmp_path: Path, together: bool) -> None:
    (tmp_path / "a").write_bytes(bytes(MIB))
    now_s = 500.0

    def wait(seconds: float, _: Any) -> None:
        nonlocal now_s
        now_s += seconds

    config = StorageConfig(name="test", bandwidth_mib_per_s=1.0)
    throttle = Throttle.create(config, clock=lambda: round(now_s * 1e9), wait=wait)
    storage = ChangingStorage(LocalStorage(tmp_path), throttle, *HALVING, now=lambda: now_s)
    halves = [("a", 0, MIB // 2)] * 2
    took = []
    for _ in range(20):
        before_s = now_s
        found = storage.read_many(halves) if together else [storage.read("a", 0, MIB)]
        assert b"".join(found) == bytes(MIB)
        took.append(now_s - before_s)
    assert took == pytest.approx([1.0] * 10 + [2.0] * 5 + [1.0] * 5)


def composed(*overrides: str) -> Any:
    return compose("train", *overrides).storage


def test_it_is_an_option_that_opens(tmp_path: Path) -> None:
    config = composed("storage=halving", "storage.changes_s=[1]", "storage.shares=[0.25]")
    assert config == ChangingStorageConfig(
        name="halving", bandwidth_mib_per_s=10, changes_s=[1], shares=[0.25]
    )
    storage = open_storage(str(tmp_path), config)
    assert isinstance(storage, ChangingStorage)
    assert storage.throttle.limits.bytes_per_s == 10 * MIB


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("changes_s=[2,1]", r"storage.changes_s=\[2.0, 1.0\]: wanted rising seconds above 0"),
        ("changes_s=[0,1]", r"storage.changes_s=\[0.0, 1.0\]: wanted rising seconds above 0"),
        ("changes_s=[1]", r"storage.shares=\[0.5, 1.0\]: wanted as many shares in \(0, 1\] as there are"),
        ("shares=[0,1]", r"storage.shares=\[0.0, 1.0\]: wanted as many shares in \(0, 1\] as there are"),
        ("shares=[1,1.5]", r"storage.shares=\[1.0, 1.5\]: wanted as many shares in \(0, 1\] as there are"),
    ],
)
def test_changes_that_cannot_be_are_refused_by_their_key(changes: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed("storage=halving", f"storage.{changes}")


def test_shares_need_something_to_be_shares_of() -> None:
    with pytest.raises(
        ConfigError, match=r"storage.bandwidth_mib_per_s=None: wanted a rate, because storage.shares"
    ):
        composed("storage=halving", "storage.bandwidth_mib_per_s=null")
