from __future__ import annotations

import errno
import os
from collections import Counter

import pytest

from pcr_exp.datasets.folder import read
from pcr_exp.datasets.sample import open_dataset, open_images, sort_key, split_of
from pcr_exp.errors import ConfigError, DatasetError


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


def test_class_folders_alone_are_split_by_a_hash(make_config, put):
    put(*(f"cat/{i}.jpg" for i in range(400)), *(f"dog/{i}.jpg" for i in range(100)))
    dataset = read(make_config("folder", val_fraction=0.2))
    num = Counter(sample.labels["class"] for sample in dataset.val)
    assert 60 <= num[0] <= 100 and 10 <= num[1] <= 30
    train, val = ({sample.id for sample in split} for split in (dataset.train, dataset.val))
    assert not train & val
    assert len(train | val) == 500
    assert read(make_config("folder", val_fraction=0.2)) == dataset
    assert {sample.id for sample in read(make_config("folder", split_seed=1)).val} != val


def test_odd_names(make_config, put):
    put("große Hunde/ein Bild.jpg", *(f"große Hunde/#{i}.jpg" for i in range(9)))
    put(*(f"猫/{i}.jpg" for i in range(9)))
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
    with pytest.raises(DatasetError, match=r"class 'dog': .* holds no JPEG .*; it holds 1\.png, 2\.png"):
        read(make_config("folder"))


def test_nothing_to_report_on(make_config, put):
    put("cat/1.jpg", "dog/1.jpg")
    with pytest.raises(
        DatasetError, match=r"folder: the val split has no image \(2 in all\): .*val_fraction"
    ):
        read(make_config("folder", val_fraction=0.001))


def test_a_class_that_is_wholly_held_out_is_refused_by_name(make_config, put):
    put(*(f"cat/{i}.jpg" for i in range(100)), "dog/1.jpg")
    seeds = [seed for seed in range(50) if split_of_dog(seed) == "val"]
    with pytest.raises(DatasetError, match=r"the class 'dog' has no image to train on.*split_seed.*train/"):
        read(make_config("folder", val_fraction=0.5, split_seed=seeds[0]))


def split_of_dog(seed: int) -> str:
    return split_of("dog/1.jpg", val_fraction=0.5, tune_fraction=0, seed=seed)


def test_a_class_without_validation_or_tuning_picture_is_said_by_name(make_config, put):
    put(*(f"cat/{i}.jpg" for i in range(100)), "dog/1.jpg")
    seed = next(seed for seed in range(50) if split_of_dog(seed) == "train")
    dataset = read(make_config("folder", val_fraction=0.5, tune_fraction=0.001, split_seed=seed))
    remarks = dataset.seen.all_remarks()
    assert any(
        "the class 'dog' has no image in val" in r and "raise dataset.val_fraction" in r for r in remarks
    )
    assert any("the tune split has no image" in remark for remark in remarks)
    dataset = read(make_config("folder", val_fraction=0.5, tune_fraction=0.2, split_seed=seed))
    remarks = dataset.seen.all_remarks()
    assert any("'dog' has no image in t" in remark for remark in remarks)


def test_what_is_left_alone_is_counted_and_said(make_config, put):
    put(*(f"cat/{i}.jpg" for i in range(20)), *(f"dog/{i}.jpg" for i in range(20)))
    put("cat/a.png", "dog/b.PNG", "dog/c.webp", "dog/README", "dog/.DS_Store", "dog/more/1.jpg", "loose.jpg")
    remarks = " ".join(read(make_config("folder")).seen.all_remarks())
    assert "next to 40 JPEG files there are 2 .png, 1 .webp, 1 (no suffix), which are ignored" in remarks
    assert "1 folder is next to the images and not searched" in remarks and "dog/more" in remarks
    assert "1 JPEG file in" in remarks and "loose.jpg" in remarks


def test_a_link_to_itself_is_an_other_file(make_config, put, tmp_path):
    put(*(f"{name}/{i}.jpg" for i in range(20) for name in ("cat", "dog")))
    (tmp_path / "cat/loop").symlink_to(tmp_path / "cat/loop")
    remarks = " ".join(read(make_config("folder")).seen.all_remarks())
    assert "1 (no suffix), which are ignored" in remarks


def test_a_folder_that_cannot_be_listed_is_named(make_config, put, monkeypatch):
    put("cat/1.jpg", "dog/1.jpg")

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DatasetError, match=r"cannot be listed: Permission denied. Check its permissions"):
        read(make_config("folder"))


def test_folders_beside_train_and_val_are_said(make_config, put):
    put(*(f"{split}/{name}/1.jpg" for split in ("train", "val", "test") for name in ("cat", "dog")))
    (remark,) = read(make_config("folder")).seen.all_remarks()
    assert "folders besides train/ and val/, which are ignored: test." in remark


def patients(num: int) -> list[str]:
    return [f"{name}/p{i}_{side}.jpg" for i in range(num) for name in ("cat", "dog") for side in "lr"]


def test_images_of_one_group_are_never_on_two_sides(make_config, put):
    put(*patients(60))
    dataset = read(make_config("folder", val_fraction=0.3, tune_fraction=0.3, group_by=r"/(p\d+)_"))
    groups = [{sample.group for sample in split} for split in dataset.splits.values()]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 60
    assert sum(map(len, dataset.splits.values())) == 240
    assert all(sample.group == sample.id[4 : sample.id.index("_")] for sample in dataset.train)


def test_without_groups_the_split_is_what_it_was(make_config, put):
    put(*patients(60))
    assert all(sample.group is None for sample in read(make_config("folder")).train)


def test_an_image_that_is_in_no_group_is_named(make_config, put):
    put(*patients(3), "dog/other.jpg", "dog/_.jpg")
    with pytest.raises(DatasetError, match=r"captures nothing in dog/_.jpg \(2 of 14 images\).*path below"):
        read(make_config("folder", group_by=r"/(p\d*)_"))


def test_groups_on_both_given_sides_are_said(make_config, put):
    put(*(f"{split}/{path}" for split in ("train", "val") for path in patients(2)), "train/cat/p7_l.jpg")
    (remark,) = read(make_config("folder", tune_fraction=0, group_by=r"/(p\d)_")).seen.all_remarks()
    assert "2 groups of dataset.group_by='/(p\\\\d)_' have images in both train/ and val/ (p0, p1)" in remark


@pytest.mark.parametrize("expression", ["p[0-9]+", "(p)([0-9])", "(p[0-9]+"])
def test_an_expression_that_captures_no_group_is_refused(make_config, expression: str):
    with pytest.raises(ConfigError, match=r"dataset.group_by=.*: wanted null or a regular expression"):
        make_config("folder", group_by=expression)


@pytest.mark.parametrize(
    "files",
    [
        ["cat/1.jpg", "dog/1.jpg"],
        ["cat/1.jpg"],
        ["val/cat/1.jpg", "val/dog/1.jpg"],
        ["train/cat/1.jpg", "val/cat/1.jpg", "val/dog/1.jpg"],
    ],
)
def test_class_folders_that_nothing_could_be_trained_on_can_be_looked_at(make_config, put, files: list[str]):
    put(*files)
    images = open_images(make_config("folder", val_fraction=0.001))
    assert sorted(sample.id for sample in images.samples) == files
    for sample in images.samples:
        assert images.classes["class"][sample.labels["class"]] == sample.path.parent.name
    with pytest.raises(DatasetError):
        open_dataset(make_config("folder", val_fraction=0.001))


def test_a_flat_folder_has_no_labels_and_says_what_gives_them(make_config, put):
    put("1.jpg", "2.jpg")
    for look in (open_images, open_dataset):
        with pytest.raises(DatasetError, match=r"The 2 JPEG files in it have no label: .*dataset=table"):
            look(make_config("folder"))


def test_an_empty_folder_holds_no_class(make_config):
    with pytest.raises(DatasetError, match="has 0 class folders; wanted one or more"):
        open_images(make_config("folder"))


def test_datasets_of_other_kinds_are_looked_at_in_all_their_splits(make_config):
    config = make_config("photos", num_train=30, num_val=10, size_px=64, tune_fraction=0.2)
    dataset, images = open_dataset(config), open_images(config)
    assert {sample.id for sample in images.samples} == {
        sample.id for split in dataset.splits.values() for sample in split
    }
    assert [sample.id for sample in images.samples] == sorted(
        (sample.id for sample in images.samples), key=lambda id_: sort_key(id_)
    )
