"""A small part of a dataset can be copied into class folders."""

from pathlib import Path

import pytest

from experiments.gpu import copy_classes
from pcr_exp.datasets.folder import read
from pcr_exp.errors import DatasetError


def test_a_part_is_copied_in_class_folders_that_are_a_dataset(make_config, put, tmp_path: Path):
    put(*(f"{name}/{i}.jpg" for i in range(60) for name in ("cat", "dog")))
    (tmp_path / "cat" / "0.jpg").write_bytes(b"12345")
    num_images, num_bytes = copy_classes(read(make_config("folder")), "class", 40, tmp_path / "part")
    assert num_images == 40 and num_bytes in (0, 5)
    part = read(make_config("folder", root=str(tmp_path / "part")))
    assert (len(part.train), len(part.val)) == (32, 8)
    with pytest.raises(DatasetError, match="part is there already: delete it, or give another folder"):
        copy_classes(part, "class", 40, tmp_path / "part")


def test_classes_that_a_few_images_do_not_have_are_left_out(make_config, put, tmp_path: Path):
    put(*(f"train/cat/{i}.jpg" for i in range(9)), "train/dog/1.jpg", "val/cat/1.jpg", "val/dog/1.jpg")
    with pytest.raises(DatasetError, match=r"folder: [01] classes of 'class' have images among the first 2"):
        copy_classes(read(make_config("folder")), "class", 2, tmp_path / "part")
