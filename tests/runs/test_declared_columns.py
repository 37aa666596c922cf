"""A policy declares its own column: rows have it, the manifest lists it, and the run is read back."""

from pathlib import Path
from typing import Any

import pytest

from pcr_exp.analysis.runs import read_runs
from pcr_exp.policies.policy import Decision, OneGroup
from pcr_exp.runs import data
from pcr_exp.runs.packed import pack_runs
from pcr_exp.runs.train_run import run_training
from pcr_exp.system.columns import Column

DEMAND = Column(name="demand", unit="images/s", meaning="wanted", rows=("policy",), kind="count")


class Demanding(OneGroup):
    """Reads at group 2 and reports a demand in images per second."""

    columns = (DEMAND, Column(name="measure", unit="", meaning="", kind="word", words=("demand",)))

    def __init__(self) -> None:
        super().__init__(2, [2])
        self._news = Decision(2, "demand", {2: 0.5}, {"demand": 7})


def test_rows_manifest_and_packed_set_have_what_a_policy_declares(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "open_policy", lambda *_, **__: Demanding())
    run_training(configure(training__epochs=1), progress=False)
    (run,) = read_runs(tmp_path / "runs")
    assert (run.rows[0]["kind"], run.rows[0]["measure"], run.rows[0]["demand"]) == ("policy", "demand", 7)
    assert tuple(run.manifest.columns) == Demanding.columns
    pack_runs(tmp_path / "runs", tmp_path / "packed")
    assert read_runs(tmp_path / "packed") == [run]
