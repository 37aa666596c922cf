"""Fixtures: a folder of images to make records from, and where to write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from records_encoding import write_images
from records_pictures import CASES

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.images import decode as jpeg_codec


@pytest.fixture
def dataset(tmp_path: Path) -> FolderConfig:
    """Two classes, each with four training and two validation images; two images per record.

    By the hash of `split_seed` and their names, two of the training images are held out for tuning.
    """
    images = list(CASES.values())
    for i, name in enumerate(("cat", "dog")):
        write_images(tmp_path / "in/train" / name, {f"{k}": images[4 * i + k] for k in range(4)})
        write_images(tmp_path / "in/val" / name, {f"{k}": images[8 + 2 * i + k] for k in range(2)})
    return FolderConfig(
        name="pets",
        root=str(tmp_path / "in"),
        label="class",
        images_per_record=2,
        targets={"top1": 0.5},
        tune_fraction=0.25,
        split_seed=0,
    )


@pytest.fixture
def records(tmp_path: Path) -> RecordsConfig:
    return RecordsConfig(root=str(tmp_path / "records"))


@pytest.fixture
def transcoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The images that are transcoded during a test."""
    real, seen = jpeg_codec.to_progressive, []

    def watch(original: bytes, *settings: Any) -> bytes:
        seen.append(original)
        return real(original, *settings)

    monkeypatch.setattr(jpeg_codec, "to_progressive", watch)
    return seen
