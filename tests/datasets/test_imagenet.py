from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pcr_exp.datasets.imagenet import read
from pcr_exp.errors import DatasetError

CAT, DOG = "n02123045", "n02099601"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, put) -> Path:
    put(*(f"train/{wnid}/{wnid}_{i}.JPEG" for wnid in (CAT, DOG) for i in range(3)))
    put(*(f"val/{wnid}/ILSVRC2012_val_0000000{i}.JPEG" for wnid in (CAT, DOG) for i in range(2)))
    return tmp_path


def test_reads_class_folders(root: Path, make_config):
    dataset = read(make_config("imagenet"))
    assert dataset.classes == {"wnid": [DOG, CAT]}
    assert (len(dataset.train), len(dataset.val)) == (6, 4)
    for sample in dataset.train + dataset.val:
        assert sample.path == root / sample.id
        assert dataset.classes["wnid"][sample.labels["wnid"]] == sample.path.parent.name


def test_hidden_and_other_files_are_not_pictures(make_config, put):
    put(f"train/{CAT}/._x.JPEG", f"train/{CAT}/Thumbs.db", "train/.cache/x.JPEG", "val/README")
    assert len(read(make_config("imagenet")).train) == 6


@pytest.mark.parametrize("split", ["train", "val"])
def test_split_folder_missing(root: Path, make_config, split: str):
    shutil.rmtree(root / split)
    with pytest.raises(DatasetError, match=rf"{split} is missing: wanted a folder\..*image-net\.org"):
        read(make_config("imagenet"))


def test_archives_not_unpacked(root: Path, make_config, put):
    shutil.rmtree(root / "train")
    put(f"train/{CAT}.tar")
    with pytest.raises(DatasetError, match=r"train has no class folders.*unpack each <wnid>\.tar"):
        read(make_config("imagenet"))


def test_not_wordnet_ids(make_config, put):
    put("train/cats/1.JPEG")
    with pytest.raises(DatasetError, match=r"WordNet id.*not cats.*dataset=folder"):
        read(make_config("imagenet"))


def test_flat_val(root: Path, make_config, put):
    shutil.rmtree(root / "val")
    put("val/ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(
        DatasetError, match=r"in no class folder: ILSVRC2012_val_00000001\.JPEG.*Move each into"
    ):
        read(make_config("imagenet"))


@pytest.mark.parametrize("split", ["train", "val"])
def test_empty_class_folder(root: Path, make_config, split: str):
    for path in (root / split / CAT).iterdir():
        path.unlink()
    with pytest.raises(
        DatasetError, match=rf"class '{CAT}': .*{split}/{CAT} holds no JPEG .*; it holds nothing"
    ):
        read(make_config("imagenet"))


def test_class_without_val_folder(root: Path, make_config):
    shutil.rmtree(root / "val" / CAT)
    with pytest.raises(DatasetError, match=rf"val/{CAT} is missing.*Every class needs images in both splits"):
        read(make_config("imagenet"))


def test_val_class_that_train_lacks(make_config, put):
    put("val/n00000001/1.JPEG")
    with pytest.raises(DatasetError, match=r"val has class folders that .*train lacks: n00000001"):
        read(make_config("imagenet"))
