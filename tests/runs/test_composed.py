"""Runs of two processes that combine PCR with several related methods; each takes effect."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from gloo_processes import spawned
from policy_runs import POLICIES

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.commands import TrainConfig
from pcr_exp.gradients.threelc import ThreeLCConfig
from pcr_exp.loading.echo.variants import ExampleAfterConfig
from pcr_exp.runs.rows import Row, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.distributed.processes import Processes


def composed(configure: Any, scan: str, **changes: Any) -> TrainConfig:
    return configure(
        scan=POLICIES[scan],
        echo=ExampleAfterConfig(factor=2, buffer=20),
        activations=QuantiseConfig(interval=2),
        training__epochs=4,
        training__log_every_steps=2,
        training__checkpoint_every_steps=3,
        **changes,
    )


def rows_of(config: TrainConfig) -> list[Row]:
    return read_rows(run_training(config, progress=False).folder / "rows.jsonl")


def assert_each_does_its_part(rows: list[Row]) -> None:
    last = rows[-1]
    assert (last["kind"], last["epoch"]) == ("eval", 4)
    assert last["samples_trained"] == 2 * last["samples_seen"] == 2 * 4 * 52
    assert any(row["kind"] == "policy" for row in rows)


def train(_processes: Processes, config: TrainConfig) -> str:
    return run_training(config, progress=False).status


@pytest.mark.program
@pytest.mark.parametrize("scan", ["cosine", "tuned"])
def test_two_processes_echo_and_follow_a_policy_together(configure: Any, scan: str, tmp_path: Path) -> None:
    config = dataclasses.replace(
        composed(configure, scan, runs_root=str(tmp_path)),
        gradients=ThreeLCConfig(sparsity=1.5),
        world_size=2,
    )
    assert spawned(train, 2, config) == ["finished", "finished"]
    (run,) = tmp_path.glob("photos-*")
    rows = read_rows(run / "rows.jsonl")
    assert_each_does_its_part(rows)
    # 26 fresh images per process make 52 uses, which are 4 updates an epoch; probes send nothing.
    values = {row["pushed_values"] / row["step"] for row in rows if row["step"]}
    assert len(values) == 1
    assert rows[-1]["step"] == 16
