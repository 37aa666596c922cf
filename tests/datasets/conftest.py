from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.components import schemas
from pcr_exp.config.dataset import DatasetConfig

LABELS = {
    "imagenet": "wnid",
    "ham10000": "dx",
    "cars": "model",
    "celebahq": "smiling",
    "folder": "class",
    "table": "label",
    "photos": "photo",
    "pcr_release": "class",
}


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., DatasetConfig]:
    """Make a dataset's configuration. By default, its root is tmp_path and no images are held out to tune."""

    def make(kind: str, **settings: Any) -> DatasetConfig:
        given = {
            "root": str(tmp_path),
            "label": LABELS[kind],
            "images_per_record": 8,
            "targets": {"top1": 0.5},
        }
        given |= {"name": kind, "tune_fraction": 0.0}
        made: DatasetConfig = schemas("dataset")[kind](**(given | settings))
        return made

    return make


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., None]:
    """Create empty files below tmp_path: reading a layout opens no image."""

    def make(*files: str) -> None:
        for file in files:
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    return make


@pytest.fixture
def shared_data() -> Path:
    path = Path(__file__).parents[2].parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"../shared/data is not here: {path}")
    return path
