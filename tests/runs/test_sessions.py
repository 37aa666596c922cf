"""Sessions of a run, and whether its seconds come from one setting, machine and code."""

from dataclasses import asdict
from typing import Any

import pytest
import torch

from pcr_exp.runs import sessions
from pcr_exp.runs.sessions import (
    SessionFacts,
    joint_key,
    new_session,
    timing_key,
    timing_keys,
    timing_settings,
)

CPU = torch.device("cpu")


def session(from_step: int | None, key: str) -> SessionFacts:
    return SessionFacts(
        **dict.fromkeys(("started_at", "command", "device", "cpu", "host", "python"), ""),
        **dict.fromkeys(("gpu", "git_sha", "git_dirty")),
        settings={},
        packages={},
        num_cores=1,  # type: ignore[arg-type]
        timing_key=key,
        from_step=from_step,
    )


@pytest.mark.parametrize(
    ("sessions", "keys"),
    [
        ([], []),
        ([(0, "a")], ["a"]),
        ([(0, "a"), (5, "a")], ["a"]),
        ([(0, "a"), (5, "b")], ["a", "b"]),
        ([(0, "a"), (0, "b")], ["b"]),  # the first was killed before its first checkpoint
        ([(0, "a"), (4, "b"), (4, "c")], ["a", "c"]),
        ([(0, "a"), (None, "b"), (4, "a")], ["a"]),  # the second failed before it trained
        ([(None, "a")], []),
    ],
)
def test_what_made_the_run_as_it_is(sessions: list[tuple[int | None, str]], keys: list[str]) -> None:
    assert timing_keys([session(*values) for values in sessions]) == keys


def test_the_key_of_several_is_none_of_theirs() -> None:
    assert joint_key([]) is None
    assert joint_key(["a"]) == "a"
    assert joint_key(["a", "b"]) == joint_key(["b", "a"])
    assert joint_key(["a", "b"]) not in ("a", "b")


@pytest.mark.parametrize(
    "change",
    [
        {"loader__num_workers": 3},
        {"loader__prefetch_batches": 3},
        {"loader__records_ahead": 3},
        {"storage__reads_in_flight": 3},
        {"training__num_threads": 3},
        {"training__device": "auto"},
    ],
)
def test_a_setting_of_speed_changes_the_timing_key(configure: Any, change: dict[str, Any]) -> None:
    one, other = (new_session(config, CPU) for config in (configure(), configure(**change)))
    assert one.timing_key != other.timing_key
    assert one.settings.keys() == other.settings.keys()
    assert len([key for key in one.settings if one.settings[key] != other.settings[key]]) == 1


def test_what_neither_learns_nor_slows_changes_nothing(configure: Any) -> None:
    same = configure(runs_root="elsewhere", tracking__name="wandb", seed=4)
    assert new_session(configure(), CPU).timing_key == new_session(same, CPU).timing_key


@pytest.mark.parametrize(
    "other", [{"cpu": "other"}, {"num_cores": 3}, {"gpu": "other"}, {"code": "other"}, {"device": "cuda"}]
)
def test_another_machine_or_code_is_another_key(configure: Any, other: dict[str, Any]) -> None:
    settings = timing_settings(asdict(configure()))
    machine: dict[str, Any] = {"device": "cpu", "cpu": "a", "num_cores": 2, "gpu": None, "code": "c"}
    assert timing_key(settings, **machine) != timing_key(settings, **machine | other)


def test_hosts_are_told_apart_and_not_named(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = []
    for name in ("anna", "bert", "anna"):
        monkeypatch.setattr(sessions.socket, "gethostname", lambda name=name: name)
        hosts.append(new_session(configure(), CPU).host)
    assert hosts[0] == hosts[2] != hosts[1]
    assert "anna" not in hosts[0]
