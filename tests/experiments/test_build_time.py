"""Every repeat builds the formats again and records the seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from skimage import data

from experiments.loaders.speed.records import build_times, folder_dataset, link_images
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.errors import LoaderError


@pytest.fixture
def photos(tmp_path: Path) -> DatasetConfig:
    images = []
    for number, picture in enumerate((data.astronaut(), data.chelsea(), data.coffee())):
        images.append(tmp_path / f"{number}.JPEG")
        Image.fromarray(picture).resize((64, 48)).save(images[-1])
    return folder_dataset(link_images(images, tmp_path / "linked"))


def test_each_repeat_builds_anew(photos: DatasetConfig) -> None:
    rows = list(build_times(photos, [], repeats=2))
    assert [(row["format"], row["num_images"], row["repeat"]) for row in rows] == [
        ("records", 3, 0),
        ("records", 3, 1),
    ]
    assert all(row["build_s"] > 0 and row["build_cpu_s"] > 0 for row in rows)
    assert rows[0]["num_bytes"] == rows[1]["num_bytes"] > 0


def test_a_peer_that_is_not_there_is_named(photos: DatasetConfig) -> None:
    with pytest.raises(LoaderError, match="no_such_peer"):
        list(build_times(photos, ["no_such_peer"], repeats=1))
