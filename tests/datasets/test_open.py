from __future__ import annotations

from pathlib import Path

import pytest

from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.sample import open_dataset
from pcr_exp.errors import ConfigError, DatasetError

NEED_A_ROOT = ["imagenet", "ham10000", "cars", "celebahq", "folder", "pcr_release"]


@pytest.fixture
def pictures(put) -> None:
    put(*(f"{name}/{i}.jpg" for name in ("cat", "dog") for i in range(50)))


@pytest.mark.usefixtures("pictures")
def test_opens_by_its_settings_whatever_its_name(make_config):
    dataset = open_dataset(make_config("folder", name="photos"))
    assert dataset.name == "photos"
    assert len(dataset.train) + len(dataset.val) == 100


@pytest.mark.usefixtures("pictures")
def test_subsets_are_nested_and_mixed(make_config):
    whole = open_dataset(make_config("folder", tune_fraction=0.2))
    small = open_dataset(make_config("folder", tune_fraction=0.2, max_train_images=20))
    assert small.train == whole.train[:20]
    assert small.tune == whole.tune[:5]
    one_more = open_dataset(make_config("folder", tune_fraction=0.2, max_train_images=21))
    assert one_more.tune == whole.tune[:6], "a quarter of 21, rounded up"
    assert small.val == whole.val
    assert {sample.labels["class"] for sample in small.train} == {0, 1}
    assert open_dataset(make_config("folder", tune_fraction=0.2, max_train_images=1000)) == whole


def test_settings_of_no_dataset():
    config = DatasetConfig(name="photos", label="photo", images_per_record=1, targets={"top1": 0.5})
    with pytest.raises(ConfigError, match=r"settings of DatasetConfig; choose one with dataset=cars, "):
        open_dataset(config)


@pytest.mark.usefixtures("pictures")
def test_remarks_are_logged(make_config, put, caplog):
    put("cat/more.png")
    open_dataset(make_config("folder"))
    assert "next to 100 JPEG files there are 1 .png" in caplog.text


@pytest.mark.usefixtures("pictures")
def test_unknown_label_names_the_choices(make_config):
    with pytest.raises(ConfigError, match=r"dataset\.label='breed': folder has the labels class\."):
        open_dataset(make_config("folder", label="breed"))


@pytest.mark.parametrize("name", [*NEED_A_ROOT, "photos"])
def test_root_null(make_config, name: str):
    with pytest.raises(DatasetError, match=rf"dataset\.root is null: {name} wants"):
        open_dataset(make_config(name, root=None))


@pytest.mark.parametrize("name", NEED_A_ROOT)
def test_root_missing(tmp_path: Path, make_config, name: str):
    with pytest.raises(DatasetError, match=rf"nowhere does not exist; {name} wants a folder that holds"):
        open_dataset(make_config(name, root=str(tmp_path / "nowhere")))


@pytest.mark.parametrize("name", NEED_A_ROOT)
def test_root_is_a_file(tmp_path: Path, make_config, put, name: str):
    put("archive.zip")
    with pytest.raises(DatasetError, match=rf"archive\.zip is a file; {name} wants a folder"):
        open_dataset(make_config(name, root=str(tmp_path / "archive.zip")))
