"""A run that is interrupted in any way, at any time, resumes to the rows of an undisturbed run.

The cases are a covering set of pairs of settings, kinds of interruption and moments, not their full product.
`test_kill` has a real `kill -9`; `test_distributed` has runs of several processes.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from policy_runs import POLICIES
from tiny_model import TinyConfig

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.related_methods import ActivationsConfig, EchoConfig
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import Row, deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.trainer import Trainer

ECHOES = {
    "none": EchoConfig(),
    "before": ExampleBeforeConfig(factor=2.75, buffer=40),
    "finer": ExampleBeforeConfig(factor=2, buffer=20, repeat_groups=[10]),
    "after": ExampleAfterConfig(factor=2, buffer=20),
    "batch": BatchEchoConfig(factor=1.5),
}


@dataclass(frozen=True)
class Case:
    policy: str
    echo: str
    bounded: bool
    """Whether activations are saved with bounded errors."""
    kind: str
    """`int` or `term`: a signal; the run saves a checkpoint. `error`: an update fails. `lost`: the run
    ends at once. The last two resume from the previous checkpoint."""
    step: int
    """Update in which it happens, from 0."""
    saved: int | None = None
    """Number of updates in the checkpoint that the run resumes from, if not the one due before `step`."""

    def __str__(self) -> str:
        return f"{self.policy}-{self.echo}-{'bounded' if self.bounded else 'kept'}-{self.kind}-{self.step}"

    @property
    def setting(self) -> tuple[str, str, bool]:
        return self.policy, self.echo, self.bounded


CASES = [
    Case("static", "none", False, "int", 0),  # the first update
    Case("static", "none", False, "term", 7),  # the last update of an epoch
    Case("static", "none", False, "int", 3),  # the last update of an epoch
    Case("static", "none", False, "error", 6),  # right after a checkpoint
    Case("static", "none", False, "lost", 1),  # before any checkpoint
    Case("static", "finer", False, "lost", 9),
    Case("static", "batch", True, "error", 4),
    Case("schedule", "before", False, "error", 9),
    Case("schedule", "batch", True, "int", 7),
    Case("mixture", "before", True, "term", 9),
    Case("mixture", "after", False, "int", 17),
    Case("mixture", "after", True, "lost", 17),
    Case("mssim", "finer", True, "int", 0),  # before the probe has decided anything more
    Case("cosine", "none", False, "term", 3),  # before a probe
    Case("cosine", "none", False, "error", 9),  # between two
    Case("cosine", "none", False, "int", 9),
    Case("cosine", "after", True, "lost", 17),
    Case("plateau", "none", False, "int", 9),  # between a plateau and its trial
    Case("plateau", "none", False, "error", 13, 9),  # in the trial, which comes before the checkpoint of 12
    Case("plateau", "none", False, "int", 13, 12),  # in the trial, which ends before the run does
    Case("tuned", "none", False, "int", 9),
    Case("tuned", "after", True, "lost", 17),
]
EPOCHS = {"static": 3, "mssim": 2}
_whole: dict[tuple[str, str, bool], tuple[list[Row], str | None]] = {}
"""Rows and layers of an undisturbed run, by setting; made by the first case that needs them."""


def composed(configure: Callable[..., TrainConfig], case: Case, runs_root: Path) -> TrainConfig:
    return configure(
        scan=POLICIES[case.policy],
        echo=ECHOES[case.echo],
        activations=QuantiseConfig(interval=2) if case.bounded else ActivationsConfig(),
        model=TinyConfig(dropout=0.1),
        training__epochs=EPOCHS.get(case.policy, 4),
        training__log_every_steps=2,
        training__checkpoint_every_steps=3,
        training__eval_groups=["full", "same"] if case.policy in ("schedule", "cosine") else ["full"],
        runs_root=str(runs_root),
    )


def outcome_of(config: TrainConfig) -> tuple[list[Row], str | None]:
    """Train; return the deterministic part of the run's rows, and the text of its layer file or None."""
    directory = RunDirectory(run_training(config, progress=False).folder)
    rows = deterministic_part(read_rows(directory.rows_path))
    return rows, directory.layers_path.read_text() if directory.layers_path.exists() else None


def interrupt(kind: str) -> None:
    if kind == "error":
        raise ValueError("the machine caught fire")
    if kind == "lost":
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGINT if kind == "int" else signal.SIGTERM)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interrupted_and_resumed_the_rows_are_the_same(
    configure: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    if case.setting not in _whole:
        _whole[case.setting] = outcome_of(composed(configure, case, tmp_path / "whole"))
    config = composed(configure, case, tmp_path / "cut")
    update = Trainer.update
    happened = False

    def troubled(trainer: Trainer, *args: Any, **kwargs: Any) -> float:
        nonlocal happened
        if kwargs["step"] == case.step and not happened:
            happened = True
            interrupt(case.kind)
        return update(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "update", troubled)
    ends = {"error": ValueError, "term": SystemExit}
    with pytest.raises(ends.get(case.kind, KeyboardInterrupt)):
        run_training(config, progress=False)
    monkeypatch.undo()
    (folder,) = (tmp_path / "cut").glob("photos-*")
    directory = RunDirectory(folder)
    manifest = read_manifest(directory.manifest_path)
    failed = case.kind == "error"
    assert directory.status == ("failed" if failed else "interrupted")
    assert manifest.error == ("ValueError: the machine caught fire" if failed else None)
    assert ("Traceback" in directory.log_path.read_text()) == failed

    rows, layers = outcome_of(config)
    assert (rows, layers) == _whole[case.setting]
    assert (layers is not None and len(layers.splitlines()) > 1) == case.bounded
    due = case.step + 1 if case.kind in ("int", "term") else case.step - case.step % 3
    saved_at = due if case.saved is None else case.saved
    text = directory.log_path.read_text()
    assert (f"from the checkpoint after step {saved_at}\n" in text) == (saved_at > 0)
    manifest = read_manifest(directory.manifest_path)
    assert len(manifest.resumed_at) == 1
    decided = [row["group"] for row in rows if row["kind"] == "policy"]
    assert manifest.scan_group == ([5, *decided][-1])


def test_the_cases_cover_every_pair() -> None:
    """Every policy occurs. Every echo has orderly and other ends, and every way of saving has all kinds."""
    kinds = {"int", "term", "error", "lost"}
    assert {case.policy for case in CASES} == set(POLICIES)
    assert {case.echo for case in CASES} == set(ECHOES)
    assert {(case.bounded, case.kind) for case in CASES} == {
        (kept, k) for kept in (True, False) for k in kinds
    }
    for echo in ECHOES:
        assert {case.kind in ("int", "term") for case in CASES if case.echo == echo} == {True, False}, echo
