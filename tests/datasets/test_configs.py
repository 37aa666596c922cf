"""Every configs/dataset/*.yaml composes into its dataclass and refuses unknown keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from composing import compose
from hydra.errors import ConfigCompositionException

from pcr_exp.config.components import schemas
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = sorted(path.stem for path in (CONFIGS / "dataset").glob("*.yaml"))


def dataset_of(*overrides: str) -> DatasetConfig:
    return compose("prepare", *overrides).dataset


def test_a_file_for_each_schema():
    assert set(NAMES) == set(schemas("dataset"))


@pytest.mark.parametrize("name", NAMES)
def test_composes_into_its_dataclass(name: str):
    config = dataset_of(f"dataset={name}")
    assert type(config) is schemas("dataset")[name]
    own = name in ("folder", "table")  # their folders are the user's own
    assert config.name == ("folder" if own else name)
    assert config.root == (None if own or name == "mixture" else f"data/{name}")
    assert config.paper.model == "resnet18"
    assert config.paper.lr_milestones == sorted(config.paper.lr_milestones)
    assert config.paper.lr_milestones[-1] < config.paper.epochs
    assert "???" not in (config.label, config.paper.image_size, config.paper.eval_image_size)


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("imagenet", 1024),
        ("ham10000", 64),
        ("cars", 128),
        ("celebahq", 256),
        ("photos", 64),
        ("folder", 128),
        ("table", 128),
        ("pcr_release", 1024),
    ],
)
def test_record_sizes_are_the_papers(name: str, images: int):
    assert dataset_of(f"dataset={name}").images_per_record == images


def test_photos_are_cropped_at_native_resolution():
    config = dataset_of("dataset=photos")
    assert isinstance(config, PhotosConfig)
    image_size = config.paper.image_size
    assert config.augment.crop_scale == [(image_size / config.size_px) ** 2] * 2
    assert config.augment.crop_ratio == [1, 1]
    assert image_size / config.augment.eval_crop_fraction == config.size_px


def test_override():
    config = dataset_of("dataset=cars", "dataset.label=make", "dataset.augment.horizontal_flip=false")
    assert (config.label, config.augment.horizontal_flip) == ("make", False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["dataset.foo=1", "dataset.augment.foo=1", "dataset.paper.foo=1"])
def test_unknown_key(name: str, key: str):
    with pytest.raises(ConfigCompositionException, match="foo"):
        dataset_of(f"dataset={name}", key)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["+dataset.foo=1", "+dataset.augment.foo=1", "+dataset.paper.foo=1"])
def test_unknown_key_forced_in(name: str, key: str):
    with pytest.raises(ConfigError, match="foo"):
        dataset_of(f"dataset={name}", key)


def test_bad_value_names_its_key():
    with pytest.raises(ConfigError, match=r"dataset\.split='patient': wanted lesion or file"):
        dataset_of("dataset=ham10000", "dataset.split=patient")
