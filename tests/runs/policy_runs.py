"""Scan policies that decide something within a few epochs, and helpers to stop such runs and read them."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.policies.plateau import PlateauConfig
from pcr_exp.policies.schedule import MixtureConfig, ScheduleConfig
from pcr_exp.policies.smallest import CosineConfig, MssimConfig
from pcr_exp.runs.rows import Row
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.trainer import Trainer

EPOCHS = 5
POLICIES: dict[str, ScanConfig] = {
    "static": ScanConfig(name="group_5", group=5),
    "schedule": ScheduleConfig(name="schedule", groups=[1, 2, 5], milestones=[1, 3]),
    "mixture": MixtureConfig(name="mixture", group=5, weights=[1, 1]),
    "mssim": MssimConfig(name="mssim", threshold=0.9, num_images=20),
    "cosine": CosineConfig(name="cosine", threshold=0.3, first_epoch=1, every_epochs=2, num_images=20),
    "plateau": PlateauConfig(
        name="plateau", patience_epochs=1, min_drop=0.5, trial_steps=3, tolerance=0.05, candidates=[1, 5, 10]
    ),
    "tuned": PlateauConfig(
        name="plateau", patience_epochs=1, min_drop=0.5, trial_steps=2, judge="tune", candidates=[1, 10]
    ),
}


def interrupted_at(step: int, config: TrainConfig) -> Path:
    """Train until an interrupt comes in the update of this step; return the run's folder."""
    update = Trainer.update

    def interrupted(trainer: Trainer, *args: Any, **kwargs: Any) -> float:
        if kwargs["step"] == step:
            os.kill(os.getpid(), signal.SIGINT)
        return update(trainer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Trainer, "update", interrupted)
        run_training(config, progress=False)
    (folder,) = Path(config.runs_root).iterdir()
    return folder


def decided(rows: list[Row]) -> list[tuple[int, int]]:
    """Return (epochs completed, group) of each decision."""
    return [(row["epoch"], row["group"]) for row in rows if row["kind"] == "policy"]


def of_epochs(rows: list[Row], column: str) -> list[int]:
    """Return the increase of a cumulative column in each epoch."""
    totals = [row[column] for row in rows if row["kind"] == "eval"]
    return [after - before for before, after in zip([0, *totals], totals, strict=False)]
