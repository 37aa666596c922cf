from __future__ import annotations

from collections import Counter

import pytest

from pcr_exp.datasets.folder import read
from pcr_exp.errors import DatasetError


def test_train_and_val_folders(make_config, put):
    put("train/cat/1.jpg", "train/cat/2.jpeg", "train/dog/1.JPG", "train/dog/notes.txt")
    put("val/cat/1.JPEG", "val/dog/1.jpg")
    dataset = read(make_config("folder"))
    assert dataset.classes == {"class": ["cat", "dog"]}
    assert {sample.id for sample in dataset.train} == {
        "train/cat/1.jpg",
        "train/cat/2.jpeg",
        "train/dog/1.JPG",
    }
    assert {(sample.id, sample.labels["class"]) for sample in dataset.val} == {
        ("val/cat/1.JPEG", 0),
        ("val/dog/1.jpg", 1),
    }


def test_class_folders_alone_are_split_in_proportion(make_config, put):
    put(*(f"cat/{i}.jpg" for i in range(40)), *(f"dog/{i}.jpg" for i in range(10)))
    dataset = read(make_config("folder", val_fraction=0.2))
    assert Counter(sample.labels["class"] for sample in dataset.val) == {0: 8, 1: 2}
    train, val = ({sample.id for sample in split} for split in (dataset.train, dataset.val))
    assert not train & val
    assert len(train | val) == 50
    assert read(make_config("folder", val_fraction=0.2)) == dataset
    assert {sample.id for sample in read(make_config("folder", split_seed=1)).val} != val


def test_odd_names(make_config, put):
    put("große Hunde/ein Bild.jpg", "große Hunde/#2.jpg", "猫/1.jpg", "猫/2.jpg")
    dataset = read(make_config("folder", val_fraction=0.5))
    assert dataset.classes == {"class": ["große Hunde", "猫"]}
    assert all(sample.path.is_file() for sample in dataset.train + dataset.val)


@pytest.mark.parametrize(("there", "missing"), [("train", "val"), ("val", "train")])
def test_only_one_of_train_and_val(make_config, put, there: str, missing: str):
    put(f"{there}/cat/1.jpg", f"{there}/dog/1.jpg")
    with pytest.raises(DatasetError, match=f"has {there}/ but no {missing}/"):
        read(make_config("folder"))


@pytest.mark.parametrize("files", [[], ["1.jpg", "2.jpg"], ["cat/1.jpg"]])
def test_fewer_than_two_classes(make_config, put, files: list[str]):
    put(*files)
    with pytest.raises(DatasetError, match=rf"has {len(files) % 2} class folders; wanted two or more"):
        read(make_config("folder"))


def test_class_of_other_files_says_what_was_found(make_config, put):
    put("cat/1.jpg", "cat/2.jpg", "dog/1.png", "dog/2.png")
    with pytest.raises(DatasetError, match=r"class 'dog': .* holds no JPEG .* but 1\.png, 2\.png"):
        read(make_config("folder"))


def test_classes_too_small_to_split(make_config, put):
    put("cat/1.jpg", "dog/1.jpg")
    with pytest.raises(DatasetError, match="folder: the val split has no picture"):
        read(make_config("folder"))
