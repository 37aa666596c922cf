"""A tiny dataset, made once, and runs on it that take about a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policy_runs import EPOCHS
from tiny_model import TinyConfig

from pcr_exp.config.commands import TrackingConfig, TrainConfig
from pcr_exp.config.dataset import AugmentConfig, PaperConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.records.index import RecordIndex, parse_index
from pcr_exp.records.prepare import prepare_records
from pcr_exp.runs.rows import Row, read_rows
from pcr_exp.runs.train_run import run_training

Configure = Callable[..., TrainConfig]


def tiny_dataset(root: Path) -> PhotosConfig:
    return PhotosConfig(
        name="photos",
        root=str(root / "photos"),
        label="photo",
        images_per_record=16,
        targets={"top1": 0.5},
        num_train=60,  # 52 for training, 8 for tuning
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
    """A folder with the photographs and their records."""
    root = tmp_path_factory.mktemp("prepared")
    prepare_records(tiny_dataset(root), RecordsConfig(root=str(root / "records"), num_workers=1))
    return root


@pytest.fixture
def configure(prepared: Path, tmp_path: Path) -> Configure:
    """Makes TrainConfigs: 2 epochs, updates on 16 + 16 + 16 + 4 images; `training__epochs=3` sets a key."""

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


@pytest.fixture
def run(configure: Configure) -> Callable[..., tuple[Path, list[Row]]]:
    """Trains under a scan policy for EPOCHS epochs; changes are passed to `configure`."""

    def run_one(scan: ScanConfig, **changes: Any) -> tuple[Path, list[Row]]:
        config = configure(scan=scan, training__epochs=EPOCHS, **changes)
        folder = run_training(config, progress=False).folder
        return folder, read_rows(folder / "rows.jsonl")

    return run_one


@pytest.fixture
def index(prepared: Path) -> RecordIndex:
    """The index of the training records."""
    folder = next((prepared / "records").iterdir()) / "train" / "pcr"
    return parse_index((folder / "index.json").read_bytes(), "index")
