"""A tiny dataset, made once, and runs on it that take a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_model import TinyConfig

from pcr_exp.config.dataset import AugmentConfig, PaperConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.runners import TrainConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.storage import StorageConfig
from pcr_exp.config.tracking import TrackingConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.records.prepare import prepare_records

Configure = Callable[..., TrainConfig]


def tiny_dataset(root: Path) -> PhotosConfig:
    return PhotosConfig(
        name="photos",
        root=str(root / "photos"),
        label="photo",
        images_per_record=16,
        targets={"top1": 0.5},
        num_train=60,  # 52 to train on, 8 to tune by
        num_val=20,
        size_px=64,
        augment=AugmentConfig(crop_scale=[0.25, 0.25], crop_ratio=[1.0, 1.0], eval_crop_fraction=0.5),
        paper=PaperConfig(
            model="resnet18",
            epochs=1,
            learning_rate=0.1,
            lr_milestones=[],
            image_size=32,
            eval_image_size=32,
        ),
    )


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the photographs and their records."""
    root = tmp_path_factory.mktemp("prepared")
    prepare_records(tiny_dataset(root), RecordsConfig(root=str(root / "records"), num_workers=1))
    return root


@pytest.fixture
def configure(prepared: Path, tmp_path: Path) -> Configure:
    """Make a TrainConfig: 2 epochs of updates on 16 + 16 + 16 + 4 images; `training__epochs=3` sets a key."""

    def make(**changes: Any) -> TrainConfig:
        config = TrainConfig(
            dataset=tiny_dataset(prepared),
            records=RecordsConfig(root=str(prepared / "records"), num_workers=1),
            model=TinyConfig(),
            scan=ScanConfig(name="group_5", group=5),
            storage=StorageConfig(name="unlimited"),
            loader=LoaderConfig(num_workers=0, shuffle_records=2),
            training=TrainingConfig(
                epochs=2,
                batch_size=16,
                image_size=32,
                eval_image_size=32,
                learning_rate=0.02,
                schedule="cosine",
                log_every_steps=3,
                device="cpu",
                num_threads=1,
            ),
            tracking=TrackingConfig(name="none"),
            runs_root=str(tmp_path / "runs"),
        )
        for key, value in changes.items():
            group, _, name = key.rpartition("__")
            setattr(getattr(config, group) if group else config, name, value)
        return config

    return make
