"""`pcr_exp.open(...).loader(...)` gives the batches that a run with these settings trains on or validates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pcr_exp as pcr
from pcr_exp.api.loader import DatasetLoader
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.prepare import records_folder
from pcr_exp.runs.data import open_data, training_loader, validation_loader
from pcr_exp.training.distributed.processes import Processes

Configure = Callable[..., TrainConfig]
CROPS: dict[str, Any] = {"crop_scale": (0.3, 0.6), "crop_ratio": (1.0, 1.5), "horizontal_flip": False}
OTHERS: dict[str, Any] = {"eval_crop_fraction": 0.7, "antialias": False}


@pytest.fixture
def config(configure: Configure) -> TrainConfig:
    augment = AugmentConfig(
        crop_scale=[0.3, 0.6], crop_ratio=[1.0, 1.5], horizontal_flip=False, eval_crop_fraction=0.7
    )
    return configure(dataset__augment=augment, loader__antialias=False, loader__shuffle_records=1)


def open_ours(config: TrainConfig, split: str, scan: str, **given: Any) -> DatasetLoader:
    folder = Path(config.records.root) / records_folder(config.dataset, config.records) / split
    size = {"batch_size": config.training.batch_size, "image_size": 32, "num_workers": 0}
    return pcr.open(folder, scan=scan, label=config.dataset.label).loader(seed=config.seed, **size, **given)


def alike(run_s: RecordLoader, ours: DatasetLoader) -> bool:
    """Return whether both loaders give equal batches in an epoch."""
    with run_s, ours:
        return all(
            torch.equal(batch.images, images) and torch.equal(batch.labels, labels)
            for batch, (images, labels) in zip(run_s.batches(0, 0, 1), ours, strict=True)
        )


@pytest.mark.parametrize("left_out", ["", *CROPS, "antialias"])
def test_batches_that_a_run_trains_on(config: TrainConfig, left_out: str) -> None:
    """The batches are exactly equal, and differ if any of the settings is left out."""
    given = {name: value for name, value in (CROPS | OTHERS).items() if name != left_out}
    with open_ours(config, "train", "group_5", **given) as ours:
        run_s = training_loader(config, open_data(config), StaticScan(5), Processes())
        assert alike(run_s, ours) == (not left_out)


@pytest.mark.parametrize("left_out", ["", *OTHERS])
def test_batches_that_a_run_looks_at(config: TrainConfig, left_out: str) -> None:
    given = {name: value for name, value in OTHERS.items() if name != left_out}
    with open_ours(config, "val", "baseline", augment=False, shuffle=False, **given) as ours:
        assert alike(validation_loader(config, open_data(config)), ours) == (not left_out)
