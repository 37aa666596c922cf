from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from pcr_exp.datasets.cars import make_of, read
from pcr_exp.errors import DatasetError

MODELS = [
    "AM General Hummer SUV 2000",
    "Acura RL Sedan 2012",
    "Chevrolet Corvette ZR1 2012",
    "Chevrolet Sonic Sedan 2012",
]


def write_annos(path: Path, rows: list[tuple[str, int]], *fields: str) -> None:
    """Write annotations in the devkit's format, a 1 x N MATLAB struct."""
    names = fields or ("fname", "class")
    annotations = np.zeros((1, len(rows)), dtype=[(name, object) for name in names])
    for i, row in enumerate(rows):
        annotations[0, i] = row
    scipy.io.savemat(path, {"annotations": annotations})


@pytest.fixture(autouse=True)
def root(tmp_path: Path, put) -> Path:
    put(*(f"cars_train/0000{i}.jpg" for i in range(1, 7)), *(f"cars_test/0000{i}.jpg" for i in range(1, 4)))
    devkit = tmp_path / "devkit"
    devkit.mkdir()
    scipy.io.savemat(devkit / "cars_meta.mat", {"class_names": np.array([MODELS], dtype=object)})
    write_annos(devkit / "cars_train_annos.mat", [(f"0000{i}.jpg", 1 + i % 3) for i in range(1, 7)])
    write_annos(
        tmp_path / "cars_test_annos_withlabels.mat", [(f"0000{i}.jpg", 1 + i % 3) for i in range(1, 4)]
    )
    return tmp_path


def test_three_labels(root: Path, make_config):
    dataset = read(make_config("cars"))
    assert dataset.classes == {
        "model": MODELS,
        "make": ["AM General", "Acura", "Chevrolet"],
        "is_corvette": ["not_corvette", "corvette"],
    }
    by_id = {sample.id: sample for sample in dataset.train}
    assert set(by_id) == {f"cars_train/0000{i}.jpg" for i in range(1, 7)}
    assert by_id["cars_train/00002.jpg"].labels == {"model": 2, "make": 2, "is_corvette": 1}
    assert by_id["cars_train/00003.jpg"].labels == {"model": 0, "make": 0, "is_corvette": 0}
    assert by_id["cars_train/00003.jpg"].path == root / "cars_train" / "00003.jpg"


def test_val_is_the_official_test_set(make_config):
    assert {sample.id for sample in read(make_config("cars")).val} == {
        f"cars_test/0000{i}.jpg" for i in range(1, 4)
    }


def test_test_annotations_may_lie_in_the_devkit(root: Path, make_config):
    before = read(make_config("cars"))
    (root / "cars_test_annos_withlabels.mat").rename(root / "devkit" / "cars_test_annos_withlabels.mat")
    assert read(make_config("cars")) == before


def test_one_picture(root: Path, make_config):
    write_annos(root / "cars_test_annos_withlabels.mat", [("00001.jpg", 4)])
    (sample,) = read(make_config("cars")).val
    assert sample.labels == {"model": 3, "make": 2, "is_corvette": 0}


@pytest.mark.parametrize(
    ("model", "make"),
    [
        ("AM General Hummer SUV 2000", "AM General"),
        ("Aston Martin Virage Coupe 2012", "Aston Martin"),
        ("Land Rover LR2 SUV 2012", "Land Rover"),
        ("Mercedes-Benz C-Class Sedan 2012", "Mercedes-Benz"),
        ("smart fortwo Convertible 2012", "smart"),
    ],
)
def test_make(model: str, make: str):
    assert make_of(model) == make


@pytest.mark.parametrize("folder", ["devkit", "cars_train", "cars_test"])
def test_folder_missing(root: Path, make_config, folder: str):
    shutil.rmtree(root / folder)
    with pytest.raises(DatasetError, match=rf"{folder} is missing: wanted a folder.*Stanford AI Lab"):
        read(make_config("cars"))


@pytest.mark.parametrize(
    "file", ["devkit/cars_meta.mat", "devkit/cars_train_annos.mat", "cars_test_annos_withlabels.mat"]
)
def test_file_missing(root: Path, make_config, file: str):
    (root / file).unlink()
    with pytest.raises(DatasetError, match=rf"{file}.* is missing.*Stanford AI Lab"):
        read(make_config("cars"))


def test_damaged_file(root: Path, make_config):
    (root / "devkit" / "cars_meta.mat").write_bytes(b"<html>not found</html>" * 20)
    with pytest.raises(DatasetError, match=r"cars_meta\.mat is not a readable MATLAB file"):
        read(make_config("cars"))


def test_other_variable(root: Path, make_config):
    scipy.io.savemat(root / "devkit" / "cars_meta.mat", {"other": [1, 2]})
    with pytest.raises(DatasetError, match=r"cars_meta\.mat has no variable 'class_names'"):
        read(make_config("cars"))


def test_annotations_without_labels(root: Path, make_config):
    write_annos(
        root / "cars_test_annos_withlabels.mat", [("00001.jpg", 5), ("00002.jpg", 5)], "fname", "bbox_x1"
    )
    with pytest.raises(DatasetError, match=r"withlabels\.mat: a row lacks fname and class"):
        read(make_config("cars"))


@pytest.mark.parametrize("model", [0, 5])
def test_class_out_of_range(root: Path, make_config, model: int):
    write_annos(root / "devkit" / "cars_train_annos.mat", [("00001.jpg", 1), ("00002.jpg", model)])
    with pytest.raises(DatasetError, match=rf"00002\.jpg has class {model}; wanted 1\.\.4"):
        read(make_config("cars"))


def test_listed_picture_missing(root: Path, make_config):
    (root / "cars_train" / "00004.jpg").unlink()
    with pytest.raises(DatasetError, match=r"1 of the 6 images that .* lists are missing: 00004\.jpg"):
        read(make_config("cars"))


def test_picture_without_row_is_left_out_with_a_remark(make_config, put):
    put("cars_train/00099.jpg")
    dataset = read(make_config("cars"))
    assert len(dataset.train) == 6
    assert any("00099.jpg" in remark for remark in dataset.seen.all_remarks())
